// The workload PA of docs/simulator-speed.md in ns-3: 256 hosts in 16 racks of 16, four pods, 16
// cores, and a wave of 256 answers of 20 KB a millisecond, each over a connection of its own.
//
// Two ways to build the same network:
//
//   tuned      a routing protocol of our own that finds the next link by arithmetic and picks
//              among equal links by a hash of the flow, no queue disc, 1000-packet device queues
//   installed  nix-vector routing and the default queue disc and device queues, one path per pair
//
// The program reads numbers from its input. For each number it simulates that many further waves
// and prints one line: hops, seconds of processor time, answers, and the least, median and largest
// completion time of an answer in nanoseconds. A hop is one frame that a device begins to
// transmit. So set-up is never in a figure, and another simulator can run between two lines.
//
// With nix-vector routing the first frame between two nodes searches the whole network. To keep
// that out of the figures, too, `installed` asks the same workers in every wave; the caller does
// not count the first.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/nix-vector-routing-module.h"
#include "ns3/point-to-point-module.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <iostream>
#include <random>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t kRacks = 16;
constexpr uint32_t kHostsPerRack = 16;
constexpr uint32_t kHosts = kRacks * kHostsPerRack;
constexpr uint32_t kPods = 4;
constexpr uint32_t kRacksPerPod = kRacks / kPods;
constexpr uint32_t kMiddlesPerPod = 4;
constexpr uint32_t kCoresPerMiddle = 4;
constexpr uint32_t kWorkers = 16;
constexpr uint32_t kAnswerBytes = 20000;
constexpr uint16_t kPort = 5000;

uint64_t g_hops = 0;

void
OnTransmit(Ptr<const Packet>)
{
    ++g_hops;
}

uint32_t
Mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x45d9f3b;
    x = (x ^ (x >> 16)) * 0x45d9f3b;
    return x ^ (x >> 16);
}

Ipv4Address
HostAddress(uint32_t host)
{
    return Ipv4Address(0x0a000001 | host << 8);
}

/// Routing in the three-layer tree by the number of the host in the address: one table look-up
/// per hop, and no allocation.
class TreeRouting : public Ipv4RoutingProtocol
{
  public:
    enum Layer
    {
        HOST,
        RACK,
        MIDDLE,
        CORE
    };

    TreeRouting(Layer layer, uint32_t number)
        : m_layer(layer),
          m_number(number)
    {
    }

    void AddDown(Ptr<NetDevice> device)
    {
        m_down.push_back(RouteTo(device));
    }

    void AddUp(Ptr<NetDevice> device)
    {
        m_up.push_back(RouteTo(device));
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>,
                               const Ipv4Header&,
                               Ptr<NetDevice>,
                               Socket::SocketErrno& error) override
    {
        error = Socket::ERROR_NOTERROR;
        return m_up[0];
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice>,
                    UnicastForwardCallback forward,
                    MulticastForwardCallback,
                    LocalDeliverCallback deliver,
                    ErrorCallback) override
    {
        if (m_layer == HOST)
        {
            deliver(packet, header, 1);
            return true;
        }
        forward(Next(packet, header), packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override
    {
    }

    void NotifyInterfaceDown(uint32_t) override
    {
    }

    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void SetIpv4(Ptr<Ipv4>) override
    {
    }

    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override
    {
    }

  private:
    Ptr<Ipv4Route> RouteTo(Ptr<NetDevice> device) const
    {
        auto route = Create<Ipv4Route>();
        route->SetOutputDevice(device);
        // A cable has one other end, so any address names it; none is not allowed.
        route->SetGateway(Ipv4Address("10.255.255.1"));
        if (m_layer == HOST)
        {
            route->SetSource(HostAddress(m_number));
        }
        return route;
    }

    const Ptr<Ipv4Route>& Next(const Ptr<const Packet>& packet, const Ipv4Header& header) const
    {
        const uint32_t host = header.GetDestination().Get() >> 8 & 0xff;
        const uint32_t rack = host / kHostsPerRack;
        const uint32_t pod = rack / kRacksPerPod;
        if (m_layer == CORE)
        {
            return m_down[pod];
        }
        if (m_layer == RACK && rack == m_number)
        {
            return m_down[host % kHostsPerRack];
        }
        if (m_layer == MIDDLE && pod == m_number / kMiddlesPerPod)
        {
            return m_down[rack % kRacksPerPod];
        }
        // The ports of TCP are the first four bytes behind the IP header.
        uint8_t ports[4];
        packet->CopyData(ports, sizeof ports);
        uint32_t key = uint32_t{ports[0]} << 24 | ports[1] << 16 | ports[2] << 8 | ports[3];
        key ^= Mix(header.GetSource().Get()) ^ Mix(header.GetDestination().Get() * 3);
        return m_up[Mix(key + m_layer) % m_up.size()];
    }

    Layer m_layer;
    uint32_t m_number;
    std::vector<Ptr<Ipv4Route>> m_down;
    std::vector<Ptr<Ipv4Route>> m_up;
};

struct Answer
{
    Time since;
    uint32_t bytes = 0;
};

class Waves
{
  public:
    explicit Waves(bool tuned);
    void Wave();
    void Run(uint32_t waves);

  private:
    void Join(uint32_t below, uint32_t above);
    void Address(uint32_t number, Ptr<NetDevice> device);
    void Listen(uint32_t host);
    void OnAccept(Ptr<Socket> socket, const ns3::Address& from);
    void OnReceive(Answer* answer, Ptr<Socket> socket);
    void OnClose(Ptr<Socket> socket);
    uint32_t Draw(uint32_t aggregator);

    bool m_tuned;
    NodeContainer m_nodes;
    std::vector<Ptr<TreeRouting>> m_routing;
    std::vector<Ipv4Address> m_address;
    PointToPointHelper m_cable;
    Ipv4AddressHelper m_networks;
    std::mt19937 m_random{1};
    std::vector<uint32_t> m_workers;
    Time m_begun;
    std::deque<Answer> m_answers;
    std::vector<int64_t> m_fct;
};

Waves::Waves(bool tuned)
    : m_tuned(tuned),
      m_address(kHosts)
{
    constexpr uint32_t middles = kPods * kMiddlesPerPod;
    constexpr uint32_t cores = kMiddlesPerPod * kCoresPerMiddle;
    constexpr uint32_t first_middle = kHosts + kRacks;
    constexpr uint32_t first_core = first_middle + middles;
    m_nodes.Create(first_core + cores);
    m_cable.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    m_cable.SetChannelAttribute("Delay", StringValue("1us"));
    InternetStackHelper stack;
    Ipv4NixVectorHelper nix;
    if (tuned)
    {
        m_cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000p"));
    }
    else
    {
        stack.SetRoutingHelper(nix);
    }
    stack.SetIpv6StackInstall(false);
    stack.Install(m_nodes);
    m_networks.SetBase("10.0.0.0", "255.255.255.252");
    for (uint32_t node = 0; tuned && node < m_nodes.GetN(); ++node)
    {
        const auto layer = node < kHosts         ? TreeRouting::HOST
                           : node < first_middle ? TreeRouting::RACK
                           : node < first_core   ? TreeRouting::MIDDLE
                                                 : TreeRouting::CORE;
        const uint32_t first[] = {0, kHosts, first_middle, first_core};
        m_routing.push_back(Create<TreeRouting>(layer, node - first[layer]));
        m_nodes.Get(node)->GetObject<Ipv4>()->SetRoutingProtocol(m_routing.back());
    }
    for (uint32_t host = 0; host < kHosts; ++host)
    {
        Join(host, kHosts + host / kHostsPerRack);
    }
    for (uint32_t rack = 0; rack < kRacks; ++rack)
    {
        for (uint32_t m = 0; m < kMiddlesPerPod; ++m)
        {
            Join(kHosts + rack, first_middle + rack / kRacksPerPod * kMiddlesPerPod + m);
        }
    }
    // Pod by pod, so that the links of a core are in the order of the pods.
    for (uint32_t middle = 0; middle < middles; ++middle)
    {
        for (uint32_t c = 0; c < kCoresPerMiddle; ++c)
        {
            const uint32_t core = middle % kMiddlesPerPod * kCoresPerMiddle + c;
            Join(first_middle + middle, first_core + core);
        }
    }
    for (uint32_t host = 0; host < kHosts; host += kHostsPerRack)
    {
        Listen(host);
    }
}

void
Waves::Join(uint32_t below, uint32_t above)
{
    const NetDeviceContainer ends = m_cable.Install(m_nodes.Get(below), m_nodes.Get(above));
    for (uint32_t end = 0; end < 2; ++end)
    {
        ends.Get(end)->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&OnTransmit));
    }
    if (!m_tuned)
    {
        const Ipv4InterfaceContainer addresses = m_networks.Assign(ends);
        m_networks.NewNetwork();
        if (below < kHosts)
        {
            m_address[below] = addresses.GetAddress(0);
        }
        return;
    }
    Address(below, ends.Get(0));
    Address(above, ends.Get(1));
    m_routing[below]->AddUp(ends.Get(0));
    m_routing[above]->AddDown(ends.Get(1));
}

/// Attaches a device without a queue disc.
void
Waves::Address(uint32_t number, Ptr<NetDevice> device)
{
    auto ipv4 = m_nodes.Get(number)->GetObject<Ipv4>();
    const uint32_t interface = ipv4->AddInterface(device);
    if (number < kHosts)
    {
        m_address[number] = HostAddress(number);
        ipv4->AddAddress(interface, {m_address[number], Ipv4Mask("255.255.255.0")});
    }
    ipv4->SetUp(interface);
}

void
Waves::Listen(uint32_t host)
{
    auto socket = Socket::CreateSocket(m_nodes.Get(host), TcpSocketFactory::GetTypeId());
    socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
    socket->Listen();
    socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const ns3::Address&>(),
                              MakeCallback(&Waves::OnAccept, this));
}

void
Waves::OnAccept(Ptr<Socket> socket, const ns3::Address&)
{
    // A wave is over before the next one begins, so this is an answer of the last one. It is kept
    // as long as the program runs, as its socket is.
    m_answers.push_back({m_begun});
    socket->SetRecvCallback(MakeCallback(&Waves::OnReceive, this, &m_answers.back()));
    socket->SetCloseCallbacks(MakeCallback(&Waves::OnClose, this),
                              MakeNullCallback<void, Ptr<Socket>>());
}

void
Waves::OnReceive(Answer* answer, Ptr<Socket> socket)
{
    while (auto packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            break;
        }
        answer->bytes += packet->GetSize();
    }
    if (answer->bytes == kAnswerBytes)
    {
        m_fct.push_back((Simulator::Now() - answer->since).GetNanoSeconds());
        answer->bytes = 0;
    }
}

void
Waves::OnClose(Ptr<Socket> socket)
{
    socket->Close();
}

/// A host of another rack.
uint32_t
Waves::Draw(uint32_t aggregator)
{
    std::uniform_int_distribution<uint32_t> others(0, kHosts - kHostsPerRack - 1);
    const uint32_t at = others(m_random);
    return at < aggregator ? at : at + kHostsPerRack;
}

void
Waves::Wave()
{
    m_begun = Simulator::Now();
    const bool draw = m_tuned || m_workers.empty();
    for (uint32_t at = 0; at < kRacks * kWorkers; ++at)
    {
        const uint32_t aggregator = at / kWorkers * kHostsPerRack;
        if (draw)
        {
            m_workers.resize(kRacks * kWorkers);
            m_workers[at] = Draw(aggregator);
        }
        auto socket =
            Socket::CreateSocket(m_nodes.Get(m_workers[at]), TcpSocketFactory::GetTypeId());
        socket->Bind();
        socket->Connect(InetSocketAddress(m_address[aggregator], kPort));
        socket->Send(Create<Packet>(kAnswerBytes));
        socket->Close();
    }
}

void
Waves::Run(uint32_t waves)
{
    const uint64_t hops = g_hops;
    m_fct.clear();
    const std::clock_t start = std::clock();
    for (uint32_t wave = 0; wave < waves; ++wave)
    {
        Simulator::Schedule(MilliSeconds(wave), &Waves::Wave, this);
    }
    Simulator::Stop(MilliSeconds(waves));
    Simulator::Run();
    const double took = double(std::clock() - start) / CLOCKS_PER_SEC;
    std::sort(m_fct.begin(), m_fct.end());
    const auto at = [this](size_t place) { return m_fct.empty() ? 0 : m_fct[place]; };
    std::cout << g_hops - hops << ' ' << took << ' ' << m_fct.size() << ' ' << at(0) << ' '
              << at(m_fct.size() / 2) << ' ' << at(m_fct.size() - 1) << std::endl;
}

} // namespace

int
main(int argc, char** argv)
{
    const std::string mode = argc == 2 ? argv[1] : "";
    if (mode != "tuned" && mode != "installed")
    {
        std::cerr << "usage: pa tuned|installed, then numbers of waves" << std::endl;
        return 2;
    }
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 20));
    Waves run(mode == "tuned");
    uint32_t waves;
    while (std::cin >> waves)
    {
        run.Run(waves);
    }
}
