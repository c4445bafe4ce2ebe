"""Operations of the management API, a method each."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, cast

from . import types as t
from .transport import Remote, Transport


#: Longest silence of a host whose events are watched: it writes a line at least every ten seconds.
EVENTS_SILENCE_MAX = 30.0


@dataclass(frozen=True)
class Way:
    """The way to make a change of the fabric's configuration."""

    check: bool | None = None
    """True: members are only asked for their votes."""
    comment: str | None = None
    """Remark for the log."""
    confirmed_s: int | None = None
    """Seconds after which it is undone unless it is confirmed."""
    require_all: bool | None = None
    """True: no member may be away."""
    wait_ms: int | None = None
    """Milliseconds for which members that are away are waited for."""


class Client:
    """A host, by the socket `http.sock` of its directory, or by its address.

    A method raises `Problem` if the host refuses, and `Unreachable` if there is no answer.
    """

    def __init__(self, host: str | os.PathLike[str] | Remote, timeout: float = 20.0) -> None:
        self._transport = Transport(host, timeout)
        self._key: str | None = None

    def once(self, key: str) -> Client:
        """Returns a client whose next change is made once, however often it is sent.

        After an answer that did not come, send the same change by the same key again. Each change
        has a key of its own, such as a UUID.
        """
        client = copy(self)
        client._key = key
        return client

    def ask(
        self,
        method: str,
        template: str,
        names: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
        body: object = None,
    ) -> Any:
        """Sends a request of the document that has no method here."""
        return self._transport.ask(method, template, names or {}, query or {}, body, self._key)

    # The host.

    def paths(self) -> list[str]:
        """Returns the paths of the API."""
        return cast(list[str], self.ask("GET", "/v1")["paths"])

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document of the host."""
        return cast(dict[str, Any], self.ask("GET", "/v1/openapi.json"))

    def host(self) -> t.Envelope:
        """Names the host and its version."""
        return cast(t.Envelope, self.ask("GET", "/v1/host"))

    def status(self) -> t.Report:
        """Judges the host and its fabric."""
        return cast(t.Report, self.ask("GET", "/v1/status"))

    def show(self, question: t.Question) -> Any:
        """Shows rows of the switch."""
        answer = self.ask("GET", "/v1/show/{question}", {"question": question})
        return answer[question]

    def placement(self) -> t.PlacementAnswer:
        """Shows the placement policy that holds."""
        return cast(t.PlacementAnswer, self.ask("GET", "/v1/placement"))

    def set_placement(self, policy: t.PlacementPolicy) -> t.Enveloped_PolicySet:
        """Sets the placement policy of all hosts."""
        return cast(t.Enveloped_PolicySet, self.ask("PUT", "/v1/placement", body=policy))

    def reload(self) -> t.Reloaded:
        """Lets the host read its file again."""
        return cast(t.Reloaded, self.ask("POST", "/v1/reload"))

    # Those who ask over the network.

    def tokens(self) -> list[t.TokenEntry]:
        """Lists the tokens, without their texts."""
        return cast(list[t.TokenEntry], self.ask("GET", "/v1/tokens")["tokens"])

    def make_token(self, token: t.NewToken) -> t.Enveloped_Made:
        """Makes a token, whose text is in this answer alone."""
        return cast(t.Enveloped_Made, self.ask("POST", "/v1/tokens", body=token))

    def revoke_token(self, name: str) -> str:
        """Ends a token."""
        answer = self.ask("DELETE", "/v1/tokens/{name}", {"name": name})
        return cast(str, answer["revoked"])

    # Ports.

    def ports(self) -> list[t.PortState]:
        """Lists the ports that were added."""
        return cast(list[t.PortState], self.ask("GET", "/v1/ports")["ports"])

    def add_port(self, port: t.NewPort) -> t.Added:
        """Adds a port."""
        return cast(t.Added, self.ask("POST", "/v1/ports", body=port))

    def port(self, name: str) -> t.Card:
        """Looks at the device of a port as it is now."""
        return cast(t.Card, self.ask("GET", "/v1/ports/{name}", {"name": name}))

    def delete_port(self, name: str) -> t.Deleted:
        """Deletes a port."""
        return cast(t.Deleted, self.ask("DELETE", "/v1/ports/{name}", {"name": name}))

    # The fabric.

    def fabric(self, question: t.FabricQuestion) -> Any:
        """Shows a part of the fabric."""
        answer = self.ask("GET", "/v1/fabric/{question}", {"question": question})
        return answer[question]

    def vports(self, vnet: str | None = None) -> list[t.VportRow]:
        """Lists the endpoints of a network, or of all."""
        answer = self.ask("GET", "/v1/vports", query={"vnet": vnet})
        return cast(list[t.VportRow], answer["vports"])

    def vport(self, endpoint: str, vnet: str | None = None) -> t.Vport:
        """Shows an endpoint by its MAC or one of its addresses."""
        path, names = "/v1/vports/{endpoint}", {"endpoint": endpoint}
        return cast(t.Vport, self.ask("GET", path, names, {"vnet": vnet})["vport"])

    def thaw(self, endpoint: str, vnet: str | None = None) -> list[t.ThawRow]:
        """Allows an endpoint that moved too often to move again."""
        path, names = "/v1/vports/{endpoint}/thaw", {"endpoint": endpoint}
        return cast(list[t.ThawRow], self.ask("POST", path, names, {"vnet": vnet})["thaw"])

    def events(self, seconds: int | None = None) -> Generator[t.EventRow, None, None]:
        """Returns what happens from now on, as it happens; it ends after `seconds` if given.

        `Unreachable` is raised when the host is silent for half a minute, or ends: look at the
        state, and watch again.
        """
        path = "/v1/events" if seconds is None else f"/v1/events?seconds={seconds}"
        for line in self._transport.lines(path, EVENTS_SILENCE_MAX):
            if line.startswith("data: "):
                yield cast(t.EventRow, json.loads(line.removeprefix("data: ")))

    # The configuration: each write is a transaction.

    def vnets(self) -> list[t.VnetRow]:
        """Lists the networks."""
        return cast(list[t.VnetRow], self.ask("GET", "/v1/vnets")["vnets"])

    def create_vnet(
        self, name: str, vnet: t.VnetSettings, way: Way = Way()
    ) -> t.Enveloped_Changed:
        """Makes a network."""
        return self._change("POST", "/v1/vnets", way, body={"name": name, "vnet": vnet})

    def set_vnet(self, name: str, values: t.VnetPatch, way: Way = Way()) -> t.Enveloped_Changed:
        """Changes values of a network; None is the default."""
        return self._change("PATCH", "/v1/vnets/{name}", way, {"name": name}, values)

    def delete_vnet(self, name: str, way: Way = Way()) -> t.Enveloped_Changed:
        """Deletes a network."""
        return self._change("DELETE", "/v1/vnets/{name}", way, {"name": name})

    def config(self, revision: int | None = None) -> t.ConfigurationAt:
        """Returns the configuration, now or at an earlier revision."""
        answer = self.ask("GET", "/v1/config", query={"revision": revision})
        return cast(t.ConfigurationAt, answer["config"])

    def transactions(self, last: int | None = None) -> list[t.LogRow]:
        """Lists transactions, the newest first."""
        answer = self.ask("GET", "/v1/transactions", query={"last": last})
        return cast(list[t.LogRow], answer["log"])

    def change(
        self, operations: Sequence[t.Operation | Mapping[str, Any]], way: Way = Way()
    ) -> t.Enveloped_Changed:
        """Changes the configuration: all operations, or none."""
        return self._change("POST", "/v1/transactions", way, body={"change": list(operations)})

    def confirm(self) -> t.Enveloped_Changed:
        """Keeps the transaction that would be undone by itself."""
        return cast(t.Enveloped_Changed, self.ask("POST", "/v1/transactions/confirm"))

    def rollback(self, to: int, way: Way = Way()) -> t.Enveloped_Changed:
        """Undoes everything after a revision."""
        return self._change("POST", "/v1/transactions/rollback", way, body={"to": to})

    def _change(
        self,
        method: str,
        template: str,
        way: Way,
        names: dict[str, str] | None = None,
        body: object = None,
    ) -> t.Enveloped_Changed:
        answer = self.ask(method, template, names, asdict(way), body)
        return cast(t.Enveloped_Changed, answer)
