"""Shapes of bodies and answers. Made of the OpenAPI document by `generate_types.py`."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict


class Added(TypedDict):
    allow_ip: NotRequired[list[AllowedIp]]
    device: str
    ips: NotRequired[list[Cidr]]
    mac: NotRequired[str | None]
    name: str
    netns: NotRequired[str | None]
    number: int
    vnet: str


class AddedPorts(TypedDict):
    ports: list[PortState]


class AtRestart(TypedDict):
    key: str
    why: str


class Attachment(TypedDict):
    container: str
    interface: str
    network: str


class Audit(TypedDict):
    closed: bool
    rows: list[AuditRow]


class AuditRow(TypedDict):
    bytes: Balance
    frames: Balance
    port: str
    priority: int


class AuthorityEntry(TypedDict):
    certificate: str
    fingerprint: str


class Balance(TypedDict):
    consumed: int
    copied: int
    delivered: int
    dropped: int
    dropped_congestion: int
    injected: int
    received: int
    resident: int


class BucketsRow(TypedDict):
    high: NotRequired[bool]
    list: list[int]
    load_percent: float


class Card(TypedDict):
    addresses: list[CardAddress]
    device: str
    mac: str
    mtu: int
    routes: list[Route]
    up: bool


class CardAddress(TypedDict):
    ip: str
    prefix: int


CertificateRow = TypedDict("CertificateRow", {
    "days_left": "int",
    "from": "str",
    "host": "str",
    "kind": "CertificateKind",
    "remedy": "NotRequired[str | None]",
    "state": "CertificateState",
    "until": "str",
})


class Certificates(TypedDict):
    refused: NotRequired[str | None]
    rows: list[CertificateRow]


class ChangeBody(TypedDict):
    change: list[Operation]


class ChangedAccepted(TypedDict):
    accepted: ChangedAcceptedAccepted


class ChangedAcceptedAccepted(TypedDict):
    changes: list[str]
    voted: list[str]


class ChangedCommitted(TypedDict):
    committed: Committed


class ChangedDone(TypedDict):
    done: ChangedDoneDone


class ChangedDoneDone(TypedDict):
    said: str


class ChipRow(TypedDict):
    error: NotRequired[str | None]
    evicted: int
    flows: int
    flows_max: int
    forwarded: NotRequired[int | None]
    full: NotRequired[int]
    kind: str
    macs: int
    macs_max: int
    mended: NotRequired[int]
    offloaded: NotRequired[int | None]
    refused: NotRequired[int]
    written: NotRequired[int]


class ClassSettings(TypedDict):
    dscp: NotRequired[list[int]]
    hold: NotRequired[HoldTime | None]
    lossless: NotRequired[bool | None]
    strict: NotRequired[bool]
    weight: NotRequired[int | None]


class Committed(TypedDict):
    applied: list[str]
    at_restart: NotRequired[list[str]]
    behind: list[str]
    changes: list[str]
    confirm_within_s: NotRequired[int | None]
    not_in_force: NotRequired[str | None]
    revision: int


class Configuration(TypedDict):
    config: ConfigurationAt


class ConfigurationAt(TypedDict):
    config: FabricConfig
    not_in_force: NotRequired[str | None]
    revision: int


class ConfigurationStatus(TypedDict):
    aside: NotRequired[list[str]]
    at_restart: NotRequired[list[str]]
    evicted: NotRequired[Evicted | None]
    fabric: str
    host: str
    leader: NotRequired[str | None]
    members: list[Progress]
    not_in_force: NotRequired[str | None]
    revision: int
    unconfirmed: NotRequired[int | None]
    why: NotRequired[str]
    writable: bool


class CpuStatus(TypedDict):
    buckets: int
    cpu: NotRequired[int | None]
    excluded: NotRequired[bool]
    high: int
    load_percent: float
    runs_vcpu: NotRequired[bool]
    worker: NotRequired[int | None]


class DecapRow(TypedDict):
    host: str
    vnet: str


class Deleted(TypedDict):
    frames: int
    name: str


class Difference(TypedDict):
    here: str
    there: str
    vnet: NotRequired[str | None]
    what: Setting


DropRow = TypedDict("DropRow", {
    "bytes": "int",
    "class": "str",
    "frames": "int",
    "port": "str",
    "priority": "int",
    "reason": "str",
})


class EncapRow(TypedDict):
    host: str
    mac: str
    unused_ns: int
    vnet: str


class Envelope(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str


class Enveloped_Added(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    allow_ip: NotRequired[list[AllowedIp]]
    device: str
    ips: NotRequired[list[Cidr]]
    mac: NotRequired[str | None]
    name: str
    netns: NotRequired[str | None]
    number: int
    vnet: str


class Enveloped_AddedPorts(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    ports: list[PortState]


class Enveloped_Card(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    addresses: list[CardAddress]
    device: str
    mac: str
    mtu: int
    routes: list[Route]
    up: bool


class Enveloped_Changed_1(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    committed: Committed


class Enveloped_Changed_2(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    accepted: Enveloped_Changed_2Accepted


class Enveloped_Changed_2Accepted(TypedDict):
    changes: list[str]
    voted: list[str]


class Enveloped_Changed_3(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    done: Enveloped_Changed_3Done


class Enveloped_Changed_3Done(TypedDict):
    said: str


class Enveloped_Configuration(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    config: ConfigurationAt


class Enveloped_Deleted(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    frames: int
    name: str


class Enveloped_FabricPart_1(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    members: list[MemberRow]


class Enveloped_FabricPart_2(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    flows: Flows


class Enveloped_FabricPart_3(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    holds: Holds


class Enveloped_FabricPart_4(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    certificates: Certificates


class Enveloped_FabricPart_5(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    rivals: list[RivalRow]


class Enveloped_FabricPart_6(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    evpn: Evpn | None


class Enveloped_FabricPart_7(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    status: ConfigurationStatus


class Enveloped_Log(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    log: list[LogRow]


class Enveloped_Made(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    name: str
    netns: NotRequired[list[str]]
    role: TokenRole
    vnets: NotRequired[list[str]]
    expires_ms: NotRequired[int | None]
    made_ms: int
    token: str


class Enveloped_OneVport(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    vport: Vport


class Enveloped_Paths(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    paths: list[str]


class Enveloped_PlacementAnswer(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    committed: NotRequired[bool]
    hosts: list[PlacementStatus]
    stamped: Stamped


class Enveloped_PolicySet_1(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    committed: NotRequired[bool]
    hosts: list[PlacementStatus]
    stamped: Stamped


class Enveloped_PolicySet_2(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    committed: Committed


class Enveloped_PolicySet_3(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    accepted: Enveloped_PolicySet_3Accepted


class Enveloped_PolicySet_3Accepted(TypedDict):
    changes: list[str]
    voted: list[str]


class Enveloped_PolicySet_4(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    done: Enveloped_PolicySet_4Done


class Enveloped_PolicySet_4Done(TypedDict):
    said: str


class Enveloped_Reloaded(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    at_restart: list[AtRestart]
    changed: list[str]
    data: NotRequired[int | None]
    ended_frames: int


class Enveloped_Report(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    grade: Grade
    rows: list[ReportRow]
    version: int


class Enveloped_Revoked(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    revoked: str


class Enveloped_Shown_1(TypedDict):
    format: int
    host: str
    program: str
    time: str
    ports: list[PortRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_10(TypedDict):
    format: int
    host: str
    program: str
    time: str
    chip: ChipRow
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_2(TypedDict):
    format: int
    host: str
    program: str
    time: str
    queues: list[QueueRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_3(TypedDict):
    format: int
    host: str
    program: str
    time: str
    drops: list[DropRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_4(TypedDict):
    format: int
    host: str
    program: str
    time: str
    audit: Audit
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_5(TypedDict):
    format: int
    host: str
    program: str
    time: str
    pauses: list[PauseRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_6(TypedDict):
    format: int
    host: str
    program: str
    time: str
    tunnels: list[SwitchTunnelRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_7(TypedDict):
    format: int
    host: str
    program: str
    time: str
    mac: list[MacRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_8(TypedDict):
    format: int
    host: str
    program: str
    time: str
    worker: list[WorkerTimes]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Shown_9(TypedDict):
    format: int
    host: str
    program: str
    time: str
    placement: list[PlacementRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Enveloped_Thawed(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    thaw: list[ThawRow]


class Enveloped_Tokens(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    tokens: list[TokenEntry]


class Enveloped_Vnets(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    vnets: list[VnetRow]


class Enveloped_Vports(TypedDict):
    format: int
    host: NotRequired[str | None]
    program: str
    time: str
    vports: list[VportRow]


class EventRow(TypedDict):
    at_ns: int
    event: str
    what: str


class Evicted(TypedDict):
    at_ms: NotRequired[int | None]
    by: NotRequired[str | None]
    revision: NotRequired[int | None]
    told_by: str


Evpn = TypedDict("Evpn", {
    "address": "str",
    "announced_routes": "int",
    "as": "int",
    "failure": "NotRequired[str | None]",
    "heard_macs": "int",
    "neighbors": "list[EvpnNeighborRow]",
    "router_id": "str",
    "vteps": "list[EvpnVtepRow]",
})


class EvpnKeptOut(TypedDict):
    looped: int
    malformed: int
    not_ours: int
    other_tunnel: int
    other_type: int
    too_many: int


EvpnNeighborRow = TypedDict("EvpnNeighborRow", {
    "address": "str",
    "as": "int",
    "is_stale": "NotRequired[bool]",
    "kept_out": "EvpnKeptOut",
    "last_ending": "NotRequired[str | None]",
    "router_id": "NotRequired[str | None]",
    "routes": "int",
    "state": "str",
    "unsent_routes": "int",
})


class EvpnVtepRow(TypedDict):
    vnis: list[int]
    vtep: str


class FabricConfig(TypedDict):
    fabric: str
    format: int
    members: NotRequired[dict[str, Member]]
    placement: NotRequired[Stamped | None]
    settings: NotRequired[Settings]
    tokens: NotRequired[dict[str, Token]]
    trust: NotRequired[Trust]
    vlans: NotRequired[dict[str, dict[str, Vlan]]]
    vnets: NotRequired[dict[str, VnetSettings]]
    vports: NotRequired[dict[str, dict[str, PortPolicy]]]


class FabricPartCertificates(TypedDict):
    certificates: Certificates


class FabricPartEvpn(TypedDict):
    evpn: Evpn | None


class FabricPartFlows(TypedDict):
    flows: Flows


class FabricPartHolds(TypedDict):
    holds: Holds


class FabricPartMembers(TypedDict):
    members: list[MemberRow]


class FabricPartRivals(TypedDict):
    rivals: list[RivalRow]


class FabricPartStatus(TypedDict):
    status: ConfigurationStatus


class Flows(TypedDict):
    decap: list[DecapRow]
    encap: list[EncapRow]
    tunnels: list[TunnelRow]


class Grant(TypedDict):
    name: str
    netns: NotRequired[list[str]]
    role: TokenRole
    vnets: NotRequired[list[str]]


class GuardRow(TypedDict):
    device: str
    lacks: NotRequired[str | None]


class HeldRow(TypedDict):
    held: list[int]
    host: str
    in_use: bool
    mac: str
    since_ns: int
    stuck: list[int]
    vnet: str


class HeldSocketRow(TypedDict):
    address: str
    frames: int
    priority: int
    since_ns: int
    stuck: bool


class Holds(TypedDict):
    held: list[HeldRow]
    isolated: list[IsolatedRow]


class HostOverride(TypedDict):
    excluded_cpus: NotRequired[list[int] | None]
    mode: NotRequired[str | None]


class IsolatedRow(TypedDict):
    cannot_hold: list[str]
    endpoints: list[str]
    held: list[int]
    isolated: list[int]
    port: str
    senders: list[str]
    since_ns: int
    stuck: list[int]


class Isolation(TypedDict):
    endpoints: list[str]
    held_at_senders: bool
    moved_ns: int
    reserve_bytes: int
    reserve_frames: int
    since_ns: int
    stuck: bool
    waiting: list[str]


class Log(TypedDict):
    log: list[LogRow]


class LogRow(TypedDict):
    at_ms: int
    by: str
    changes: list[str]
    comment: NotRequired[str]
    inverse: list[str]
    revision: int
    state: str
    why: NotRequired[str]


class LossRow(TypedDict):
    ago_ns: int
    counter: str
    frames: int
    port: str


class MacRow(TypedDict):
    mac: str
    to: str
    vnet: str


class Made(TypedDict):
    name: str
    netns: NotRequired[list[str]]
    role: TokenRole
    vnets: NotRequired[list[str]]
    expires_ms: NotRequired[int | None]
    made_ms: int
    token: str


class Member(TypedDict):
    address: NotRequired[str | None]
    id: int
    role: NotRequired[Role]
    seat: int
    vtep: str


class MemberRow(TypedDict):
    connected: bool
    differs: NotRequired[list[Difference]]
    evicted: NotRequired[str | None]
    health: str
    host: str
    id: int
    incarnation: NotRequired[int]
    kind: str
    lag: int
    program: NotRequired[str | None]
    records_received: int
    records_sent: int
    sequence: int
    stale_ns: NotRequired[int | None]
    talk: NotRequired[dict[str, int]]
    vports: int
    vtep: str


MoveRow = TypedDict("MoveRow", {
    "ago_ns": "int",
    "from": "str",
    "to": "str",
    "why": "str",
})


class NewPort(TypedDict):
    allow_ip: NotRequired[list[AllowedIp]]
    change: NotRequired[bool]
    cni: NotRequired[Attachment | None]
    device: NotRequired[str | None]
    gateway: NotRequired[str | None]
    ips: NotRequired[list[Cidr]]
    kind: NotRequired[Kind]
    mac: NotRequired[str | None]
    move: NotRequired[bool]
    mtu: NotRequired[int | None]
    name: NotRequired[str | None]
    place: Place
    routes: NotRequired[list[Route]]
    standby: NotRequired[bool]
    taken: NotRequired[int]
    vnet: str


class NewToken(TypedDict):
    days: NotRequired[int | None]
    name: str
    netns: NotRequired[list[str]]
    role: TokenRole
    vnets: NotRequired[list[str]]


class OneVport(TypedDict):
    vport: Vport


class OperationAbandonAuthority(TypedDict):
    abandon_authority: OperationAbandonAuthorityAbandonAuthority


class OperationAbandonAuthorityAbandonAuthority(TypedDict):
    fingerprint: str


class OperationAddAuthority(TypedDict):
    add_authority: OperationAddAuthorityAddAuthority


class OperationAddAuthorityAddAuthority(TypedDict):
    authority: AuthorityEntry


class OperationAddMember(TypedDict):
    add_member: OperationAddMemberAddMember


class OperationAddMemberAddMember(TypedDict):
    member: Member
    name: str


class OperationAddToken(TypedDict):
    add_token: OperationAddTokenAddToken


class OperationAddTokenAddToken(TypedDict):
    id: str
    token: Token


class OperationCreateVnet(TypedDict):
    create_vnet: OperationCreateVnetCreateVnet


class OperationCreateVnetCreateVnet(TypedDict):
    name: str
    vnet: VnetSettings


class OperationDeleteVnet(TypedDict):
    delete_vnet: OperationDeleteVnetDeleteVnet


class OperationDeleteVnetDeleteVnet(TypedDict):
    name: str


class OperationRemoveAuthority(TypedDict):
    remove_authority: OperationRemoveAuthorityRemoveAuthority


class OperationRemoveAuthorityRemoveAuthority(TypedDict):
    authority: AuthorityEntry


class OperationRemoveMember(TypedDict):
    remove_member: OperationRemoveMemberRemoveMember


class OperationRemoveMemberRemoveMember(TypedDict):
    name: str


class OperationRemoveToken(TypedDict):
    remove_token: OperationRemoveTokenRemoveToken


class OperationRemoveTokenRemoveToken(TypedDict):
    id: str


class OperationRevoke(TypedDict):
    revoke: OperationRevokeRevoke


class OperationRevokeRevoke(TypedDict):
    host: str
    serial: str


class OperationSet(TypedDict):
    set: OperationSetSet


class OperationSetAuthorities(TypedDict):
    set_authorities: OperationSetAuthoritiesSetAuthorities


class OperationSetAuthoritiesSetAuthorities(TypedDict):
    authorities: list[str]


class OperationSetMember(TypedDict):
    set_member: OperationSetMemberSetMember


class OperationSetMemberSetMember(TypedDict):
    key: str
    name: str
    value: NotRequired[dict[str, object]]


class OperationSetPlacement(TypedDict):
    set_placement: OperationSetPlacementSetPlacement


class OperationSetPlacementSetPlacement(TypedDict):
    placement: NotRequired[Stamped | None]


class OperationSetSet(TypedDict):
    key: str
    value: NotRequired[dict[str, object]]


class OperationSetVlan(TypedDict):
    set_vlan: OperationSetVlanSetVlan


class OperationSetVlanSetVlan(TypedDict):
    number: int
    trunk: str
    vlan: NotRequired[Vlan | None]


class OperationSetVnet(TypedDict):
    set_vnet: OperationSetVnetSetVnet


class OperationSetVnetSetVnet(TypedDict):
    key: str
    name: str
    value: NotRequired[dict[str, object]]


class OperationSetVport(TypedDict):
    set_vport: OperationSetVportSetVport


class OperationSetVportSetVport(TypedDict):
    key: str
    port: str
    value: NotRequired[dict[str, object]]
    vnet: str


class OperationSignBy(TypedDict):
    sign_by: OperationSignBySignBy


class OperationSignBySignBy(TypedDict):
    fingerprint: str


class OperationSpendToken(TypedDict):
    spend_token: OperationSpendTokenSpendToken


class OperationSpendTokenSpendToken(TypedDict):
    by: TokenUse
    id: str


class Paths(TypedDict):
    paths: list[str]


class PauseRow(TypedDict):
    isolated: NotRequired[Isolation | None]
    paused: bool
    paused_ns: int
    pausing: bool
    port: str
    priority: int
    received: int
    sockets: NotRequired[list[HeldSocketRow]]
    xoff_sent: int
    xon_sent: int


class PlaceNetns(TypedDict):
    netns: str


class PlacePid(TypedDict):
    pid: int


class PlaceStatus(TypedDict):
    cpus: list[CpuStatus]
    high: int
    kind: str
    mode: str
    moves: int
    name: str
    stamp: PolicyVersion


class PlaceTap(TypedDict):
    tap: str


class PlaceVm(TypedDict):
    vm: VmSocket


class PlacementAnswer(TypedDict):
    committed: NotRequired[bool]
    hosts: list[PlacementStatus]
    stamped: Stamped


class PlacementPolicy(TypedDict):
    excluded_cpus: NotRequired[list[int]]
    high: NotRequired[list[Match]]
    hosts: NotRequired[dict[str, HostOverride]]
    mode: NotRequired[str | None]


class PlacementRow(TypedDict):
    buckets: NotRequired[BucketsRow | None]
    cpu: NotRequired[int | None]
    port: str
    why: str
    worker: NotRequired[int | None]


class PlacementStatus(TypedDict):
    follows: NotRequired[bool]
    host: str
    notes: NotRequired[list[str]]
    places: NotRequired[list[PlaceStatus]]
    stamp: NotRequired[PolicyVersion | None]


class PolicyVersion(TypedDict):
    at_ms: int
    by: int
    version: int


class PortPolicy(TypedDict):
    allow_ip: NotRequired[list[AllowedIp] | None]
    priority: NotRequired[int | None]
    service_mbps: NotRequired[int | None]


class PortRow(TypedDict):
    allow_ip: NotRequired[list[AllowedIp]]
    aside_bytes: NotRequired[int]
    aside_bytes_max: NotRequired[int]
    aside_frames: NotRequired[int]
    aside_frames_max: NotRequired[int]
    driver_lost: int
    driver_pending: int
    held_bytes_max: int
    held_frames: int
    held_frames_max: int
    kernel: dict[str, int]
    kind: str
    losses: NotRequired[list[LossRow]]
    lossless: str
    port: str
    queued_bytes_max: int
    queued_frames: int
    queued_frames_max: int
    ring_frames: int
    ring_frames_max: int
    rx_bytes: int
    rx_frames: int
    sockets: NotRequired[SocketsRow | None]
    tx_bytes: int
    tx_frames: int
    vnet: str


class PortState(TypedDict):
    open: bool
    port: NewPort


class Problem(TypedDict):
    code: str
    message: str
    remedy: str


class Progress(TypedDict):
    connected: bool
    id: int
    lag: NotRequired[int | None]
    name: str
    part: str
    revision: NotRequired[int | None]
    vtep: str


class QueueRow(TypedDict):
    bytes: int
    frames: int
    lane: str
    priority: int
    source: str


class Reloaded(TypedDict):
    at_restart: list[AtRestart]
    changed: list[str]
    data: NotRequired[int | None]
    ended_frames: int


class Report(TypedDict):
    grade: Grade
    rows: list[ReportRow]
    version: int


class ReportRow(TypedDict):
    grade: Grade
    part: str
    remedy: str
    seen: str
    what: str


class Revoked(TypedDict):
    revoked: str


class RivalRow(TypedDict):
    first: str
    first_port: str
    second: str
    second_port: str
    vnet: str
    what: str


class RollbackBody(TypedDict):
    to: int


Settings = TypedDict("Settings", {
    "asks_per_port": "NotRequired[int | None]",
    "broadcasts_per_second": "NotRequired[int | None]",
    "claims_per_host": "NotRequired[int | None]",
    "class": "NotRequired[dict[str, ClassSettings]]",
    "confirmed_s": "NotRequired[int | None]",
    "freeze_s": "NotRequired[int | None]",
    "hold": "NotRequired[HoldTime | None]",
    "isolate_after_ms": "NotRequired[int | None]",
    "learn_max": "NotRequired[int | None]",
    "moves_max": "NotRequired[int | None]",
    "moves_window_s": "NotRequired[int | None]",
    "on_moves": "NotRequired[MobilityPolicy | None]",
    "policy": "NotRequired[FlowControl | None]",
    "punts_per_port": "NotRequired[int | None]",
    "unresolved_timeout_ms": "NotRequired[int | None]",
})


class ShownRowsAudit(TypedDict):
    audit: Audit


class ShownRowsChip(TypedDict):
    chip: ChipRow


class ShownRowsDrops(TypedDict):
    drops: list[DropRow]


class ShownRowsMac(TypedDict):
    mac: list[MacRow]


class ShownRowsPauses(TypedDict):
    pauses: list[PauseRow]


class ShownRowsPlacement(TypedDict):
    placement: list[PlacementRow]


class ShownRowsPorts(TypedDict):
    ports: list[PortRow]


class ShownRowsQueues(TypedDict):
    queues: list[QueueRow]


class ShownRowsTunnels(TypedDict):
    tunnels: list[SwitchTunnelRow]


class ShownRowsWorker(TypedDict):
    worker: list[WorkerTimes]


class Shown_1(TypedDict):
    ports: list[PortRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_10(TypedDict):
    chip: ChipRow
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_2(TypedDict):
    queues: list[QueueRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_3(TypedDict):
    drops: list[DropRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_4(TypedDict):
    audit: Audit
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_5(TypedDict):
    pauses: list[PauseRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_6(TypedDict):
    tunnels: list[SwitchTunnelRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_7(TypedDict):
    mac: list[MacRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_8(TypedDict):
    worker: list[WorkerTimes]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class Shown_9(TypedDict):
    placement: list[PlacementRow]
    at_ns: int
    guard: NotRequired[list[GuardRow]]
    host: str
    outside: NotRequired[list[LossRow]]
    policy: FlowControl
    version: int


class SocketsRow(TypedDict):
    asked: int
    beyond: int
    full: int
    held: list[HeldSocketRow]
    holds: int
    lacks: NotRequired[str | None]
    port_held: int
    signalled: bool
    stuck: int
    waited: int
    written_off: NotRequired[int]


class Stamped(TypedDict):
    policy: PlacementPolicy
    stamp: PolicyVersion


class SwitchTunnelRow(TypedDict):
    next_hop: str
    path_mtu: NotRequired[int | None]
    peer: str
    queued_frames: int
    rx_frames: int
    tx_frames: int
    vtep: str


class ThawRow(TypedDict):
    error: NotRequired[str | None]
    host: str
    was_frozen: NotRequired[bool | None]


class Thawed(TypedDict):
    thaw: list[ThawRow]


class Token(TypedDict):
    expires_ms: int
    hash: str
    used: NotRequired[TokenUse | None]


class TokenEntry(TypedDict):
    name: str
    netns: NotRequired[list[str]]
    role: TokenRole
    vnets: NotRequired[list[str]]
    expires_ms: NotRequired[int | None]
    made_ms: int


class TokenUse(TypedDict):
    host: str
    key: str


class Tokens(TypedDict):
    tokens: list[TokenEntry]


class Trust(TypedDict):
    authorities: NotRequired[list[str]]
    next: NotRequired[AuthorityEntry | None]
    outgoing: NotRequired[list[str]]
    revoked: NotRequired[dict[str, str]]


class TunnelRow(TypedDict):
    decap_flows: int
    encap_flows: int
    host: str
    open_ns: int


class Vlan(TypedDict):
    native: NotRequired[bool]
    vnet: str


class VmSocket(TypedDict):
    client: NotRequired[bool]
    socket: str


class VnetBody(TypedDict):
    name: str
    vnet: VnetSettings


class VnetPatch(TypedDict):
    hold: NotRequired[str | None]
    mtu: NotRequired[int | None]
    priority: NotRequired[int | None]
    service_mbps: NotRequired[int | None]
    vni: NotRequired[int | None]


class VnetRow(TypedDict):
    hosts: list[str]
    ports: list[str]
    vnet: str
    vni: int
    vports: int


class VnetSettings(TypedDict):
    hold: NotRequired[HoldTime | None]
    mtu: NotRequired[int | None]
    priority: NotRequired[int | None]
    service_mbps: NotRequired[int | None]
    vni: int


class Vnets(TypedDict):
    vnets: list[VnetRow]


class Vport(TypedDict):
    host: str
    ips: list[str]
    mac: str
    moves: int
    origin: str
    policy: NotRequired[VportPolicy | None]
    port: str
    shared: NotRequired[list[str]]
    state: str
    there_ns: int
    unused_ns: int
    usage: NotRequired[VportUsage | None]
    vnet: str
    chip: NotRequired[str | None]
    frozen_ns: NotRequired[int | None]
    history: list[MoveRow]
    moves_often: NotRequired[bool]
    others: list[VportRow]


class VportPolicy(TypedDict):
    allow_ip: NotRequired[list[AllowedIp]]
    broadcasts_per_second: int
    flow_control: str
    hold: dict[str, list[int]]
    learn_max: NotRequired[int | None]
    lossless: list[int]
    of_fabric: NotRequired[list[str]]
    priority: int
    service_mbps: NotRequired[int | None]
    trust: bool


class VportRow(TypedDict):
    host: str
    ips: list[str]
    mac: str
    moves: int
    origin: str
    policy: NotRequired[VportPolicy | None]
    port: str
    shared: NotRequired[list[str]]
    state: str
    there_ns: int
    unused_ns: int
    usage: NotRequired[VportUsage | None]
    vnet: str


class VportUsage(TypedDict):
    drops: list[DropRow]
    endpoints: int
    losses: dict[str, int]
    port: int
    rx_bytes: int
    rx_frames: int
    tx_bytes: int
    tx_frames: int
    unknown: NotRequired[str | None]
    within_ns: int


class Vports(TypedDict):
    vports: list[VportRow]


class WorkerTimes(TypedDict):
    asleep_ns: int
    busy_ns: int
    cpu: NotRequired[int | None]
    looking_ns: int
    turns: int


AllowedIp: TypeAlias = str
CertificateKind: TypeAlias = Literal["own", "anchor", "member"]
CertificateState: TypeAlias = Literal["valid", "ending", "expired", "not_yet"]
Changed: TypeAlias = ChangedCommitted | ChangedAccepted | ChangedDone
Cidr: TypeAlias = str
Enveloped_Changed: TypeAlias = Enveloped_Changed_1 | Enveloped_Changed_2 | Enveloped_Changed_3
Enveloped_FabricPart: TypeAlias = Enveloped_FabricPart_1 | Enveloped_FabricPart_2 | Enveloped_FabricPart_3 | Enveloped_FabricPart_4 | Enveloped_FabricPart_5 | Enveloped_FabricPart_6 | Enveloped_FabricPart_7
Enveloped_PolicySet: TypeAlias = Enveloped_PolicySet_1 | Enveloped_PolicySet_2 | Enveloped_PolicySet_3 | Enveloped_PolicySet_4
Enveloped_Shown: TypeAlias = Enveloped_Shown_1 | Enveloped_Shown_2 | Enveloped_Shown_3 | Enveloped_Shown_4 | Enveloped_Shown_5 | Enveloped_Shown_6 | Enveloped_Shown_7 | Enveloped_Shown_8 | Enveloped_Shown_9 | Enveloped_Shown_10
FabricPart: TypeAlias = FabricPartMembers | FabricPartFlows | FabricPartHolds | FabricPartCertificates | FabricPartRivals | FabricPartEvpn | FabricPartStatus
FabricQuestion: TypeAlias = Literal["members", "flows", "holds", "certificates", "rivals", "evpn", "status"]
FlowControl: TypeAlias = Literal["LL", "LZ", "ZL", "ZZ"]
Grade: TypeAlias = Literal["pass", "warn", "unknown", "stop"]
HoldTime: TypeAlias = str
Kind: TypeAlias = Literal["tap", "veth", "kernel", "vhost-user"]
Match: TypeAlias = str
MobilityPolicy: TypeAlias = Literal["warn", "freeze"]
Operation: TypeAlias = OperationAddMember | OperationRemoveMember | OperationSetMember | OperationCreateVnet | OperationDeleteVnet | OperationSetVnet | OperationSetVport | OperationSetVlan | OperationSet | OperationSetPlacement | OperationAddToken | OperationSpendToken | OperationRemoveToken | OperationSetAuthorities | OperationAddAuthority | OperationSignBy | OperationRemoveAuthority | OperationAbandonAuthority | OperationRevoke
Place: TypeAlias = PlaceNetns | PlacePid | PlaceTap | PlaceVm | Literal["host"]
PolicySet: TypeAlias = PlacementAnswer | Changed
Question: TypeAlias = Literal["ports", "queues", "drops", "audit", "pauses", "tunnels", "mac", "worker", "placement", "chip"]
Role: TypeAlias = Literal["auto", "learner", "witness"]
Route: TypeAlias = str
Setting: TypeAlias = Literal["vni", "network", "mtu", "policy", "vtep", "version", "clock"]
Shown: TypeAlias = Shown_1 | Shown_2 | Shown_3 | Shown_4 | Shown_5 | Shown_6 | Shown_7 | Shown_8 | Shown_9 | Shown_10
ShownRows: TypeAlias = ShownRowsPorts | ShownRowsQueues | ShownRowsDrops | ShownRowsAudit | ShownRowsPauses | ShownRowsTunnels | ShownRowsMac | ShownRowsWorker | ShownRowsPlacement | ShownRowsChip
TokenRole: TypeAlias = Literal["tenant", "viewer", "operator", "admin"]
