// SPDX-License-Identifier: Apache-2.0
/* Chooses the core that does the rest of the kernel's work for a VXLAN packet, by its inner flow.
 *
 *   device ─ receive core ─ steer ── CPU map ──▶ its core: steer_count, then the network stack
 *                             │
 *                             └─ not VXLAN, or no core yet: the stack, here, as without it
 *
 * A flow hashes to a bucket, and user space says for each bucket which core is wanted. A bucket goes
 * there when as many of its packets have left the CPU map's queues as were put there, and the last
 * one came a while ago: behind its queue a packet goes through another one, of the VXLAN device,
 * that nobody counts. One that has waited for half of `patience_ns` needs a shorter pause, and after
 * all of it none; that is counted, for packets may overtake each other then, once.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define BUCKETS 4096
#define NOBODY 0xffffffff
#define EMPTY_NS 1000000000ull

struct bucket {
	__u32 core;		/* where its packets go now; NOBODY: to the stack, here */
	__u32 put;		/* packets put into a CPU map's queue */
	__u64 last;		/* when the last one came */
	__u64 waits_since;	/* since when another core is wanted; 0: it is there */
};

struct settings {
	__u64 settle_ns;	/* how long after the last packet a bucket may move, */
	__u64 hurry_ns;		/* and after half of the patience */
	__u64 patience_ns;	/* 0: for ever */
	__u32 buckets;		/* in use, the high ones included */
	__u32 high;		/* of these, for networks of high priority: the last ones */
	__u16 port;		/* of VXLAN, in network order */
};

struct work {
	__u64 packets;
	__u64 bytes;
};

struct counts {
	__u64 other;		/* not VXLAN, or not to be read */
	__u64 unplaced;		/* VXLAN, of buckets without a core */
	__u64 steered;
	__u64 moved;		/* buckets that went to another core */
	__u64 forced;		/* of these, those that did not pause */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u32);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} state SEC(".maps");

/* Packets that have left the queues. Beside `state`, for other cores write here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u32);
} taken SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct work);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} high_networks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1); /* as many as there are cores: user space says so */
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cores SEC(".maps");

struct vxlan {
	__be32 flags;
	__be32 network;
};

#define VXLAN_HAS_NETWORK 0x08000000

static __always_inline __u32 mixed(__u32 a, __u32 b)
{
	/* A step of 32-bit MurmurHash3 (Appleby, public domain). */
	b *= 0xcc9e2d51;
	b = (b << 15) | (b >> 17);
	b *= 0x1b873593;
	a ^= b;
	a = (a << 13) | (a >> 19);
	return a * 5 + 0xe6546b64;
}

/* Skips one tag; the type of what follows, in network order. */
static __always_inline __be16 ethernet(void **at, void *end)
{
	struct ethhdr *eth = *at;
	__be16 type;

	if ((void *)(eth + 1) > end)
		return 0;
	type = eth->h_proto;
	*at = eth + 1;
	if (type == bpf_htons(ETH_P_8021Q)) {
		__be16 *tag = *at;

		if ((void *)(tag + 2) > end)
			return 0;
		type = tag[1];
		*at = tag + 2;
	}
	return type;
}

/* The outer headers: leaves `at` behind them. False if it is no VXLAN to this port. */
static __always_inline int outer(void **at, void *end, __be16 port)
{
	__be16 type = ethernet(at, end);
	struct udphdr *udp;

	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = *at;

		if ((void *)(ip + 1) > end || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
			return 0;
		/* A fragment: the stack puts it together, and only then it is seen what it is. */
		if (ip->frag_off & bpf_htons(0x3fff))
			return 0;
		*at = (void *)ip + ip->ihl * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = *at;

		if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
			return 0;
		*at = ip + 1;
	} else {
		return 0;
	}
	udp = *at;
	if ((void *)(udp + 1) > end || udp->dest != port)
		return 0;
	*at = udp + 1;
	return 1;
}

/* What two packets of one inner flow have alike. */
static __always_inline __u32 inner(void *at, void *end, __u32 network)
{
	__u32 hash = mixed(0, network);
	struct ethhdr *eth = at;
	__be16 type;
	__u8 protocol = 0;

	if ((void *)(eth + 1) > end)
		return hash;
	hash = mixed(hash, *(__u32 *)(eth->h_dest + 2));
	hash = mixed(hash, *(__u32 *)(eth->h_source + 2));
	type = ethernet(&at, end);
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end || ip->ihl < 5)
			return hash;
		hash = mixed(mixed(hash, ip->saddr), ip->daddr);
		/* Fragments have no ports but the first one has: all go by their addresses. */
		if (ip->frag_off & bpf_htons(0x3fff))
			return hash;
		protocol = ip->protocol;
		at = (void *)ip + ip->ihl * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if ((void *)(ip + 1) > end)
			return hash;
#pragma unroll
		for (int word = 0; word < 4; word++) {
			hash = mixed(hash, ip->saddr.in6_u.u6_addr32[word]);
			hash = mixed(hash, ip->daddr.in6_u.u6_addr32[word]);
		}
		protocol = ip->nexthdr;
		at = ip + 1;
	}
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) {
		__u32 *ports = at;

		if ((void *)(ports + 1) <= end)
			hash = mixed(hash, *ports);
	}
	return hash;
}

/* The bucket of a packet, or NOBODY. */
static __always_inline __u32 bucket_of(struct xdp_md *ctx, const struct settings *set)
{
	void *at = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct vxlan *vxlan;
	__u32 network, hash, low, bucket;

	if (!outer(&at, end, set->port))
		return NOBODY;
	vxlan = at;
	if ((void *)(vxlan + 1) > end || !(vxlan->flags & bpf_htonl(VXLAN_HAS_NETWORK)))
		return NOBODY;
	network = bpf_ntohl(vxlan->network) >> 8;
	hash = inner(vxlan + 1, end, network);
	hash ^= hash >> 16;
	if (set->high > set->buckets)
		return NOBODY;
	low = set->buckets - set->high;
	if (set->high && bpf_map_lookup_elem(&high_networks, &network))
		bucket = low + hash % set->high;
	else
		bucket = low ? hash % low : NOBODY;
	return bucket < BUCKETS ? bucket : NOBODY;
}

/* Moves a bucket to the wanted core if it may go now. */
static __always_inline void settle(struct bucket *b, __u32 id, __u64 now,
				   const struct settings *set, struct counts *count)
{
	__u32 *core = bpf_map_lookup_elem(&wanted, &id), *out = bpf_map_lookup_elem(&taken, &id);
	/* The entries begin with zero, which stands for nobody. */
	__u32 there = core && *core ? *core - 1 : NOBODY;
	__u64 waited, pause;

	if (b->core == there || !out) {
		b->waits_since = 0;
		return;
	}
	if (!b->waits_since)
		b->waits_since = now;
	waited = now - b->waits_since;
	/* What a full queue has dropped never leaves it: after a second, nothing is under way. */
	if (now - b->last >= EMPTY_NS)
		b->put = *(volatile __u32 *)out;
	pause = set->patience_ns && waited * 2 >= set->patience_ns ? set->hurry_ns : set->settle_ns;
	if ((__s32)(b->put - *(volatile __u32 *)out) <= 0 && now - b->last >= pause) {
		b->core = there;
	} else if (set->patience_ns && waited >= set->patience_ns) {
		b->core = there;
		/* What is still under way is not waited for again. */
		count->forced++;
	} else {
		return;
	}
	b->waits_since = 0;
	count->moved++;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	__u32 zero = 0, id;
	__u64 now;
	struct settings *set = bpf_map_lookup_elem(&config, &zero);
	struct counts *count = bpf_map_lookup_elem(&totals, &zero);
	struct bucket *b;
	struct work *w;
	long verdict;

	if (!set || !count)
		return XDP_PASS;
	id = bucket_of(ctx, set);
	b = bpf_map_lookup_elem(&state, &id);
	w = bpf_map_lookup_elem(&seen, &id);
	if (!b || !w) {
		count->other++;
		return XDP_PASS;
	}
	w->packets++;
	w->bytes += ctx->data_end - ctx->data;
	now = bpf_ktime_get_ns();
	/* Zero-filled: it has never been seen. */
	if (!b->last)
		b->core = NOBODY;
	settle(b, id, now, set, count);
	b->last = now;
	if (b->core == NOBODY) {
		count->unplaced++;
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&cores, b->core, XDP_PASS);
	if (verdict == XDP_REDIRECT) {
		__sync_fetch_and_add(&b->put, 1);
		count->steered++;
	}
	return verdict;
}

/* On the chosen core: the packet has left the queue. */
SEC("xdp/cpumap")
int steer_count(struct xdp_md *ctx)
{
	__u32 zero = 0, id, *out;
	struct settings *set = bpf_map_lookup_elem(&config, &zero);

	if (!set)
		return XDP_PASS;
	id = bucket_of(ctx, set);
	out = bpf_map_lookup_elem(&taken, &id);
	if (out)
		__sync_fetch_and_add(out, 1);
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
