// SPDX-License-Identifier: Apache-2.0
/* Chooses the core that does the rest of the kernel's work for a VXLAN packet, by its inner flow.
 *
 *   device ─ receive core ─ steer ── CPU map ──▶ its core: steer_count, then the network stack
 *                             │
 *                             └─ not VXLAN, or no core yet: the stack, here, as without it
 *
 * A flow hashes to a slot. That is its bucket, or, if it matches one of the rules of high priority,
 * the slot's high bucket is, which up to four slots share. User space says for each bucket which core
 * is wanted. A bucket goes there when as many packets of its slots have left the CPU map's queues as
 * were put there, and its last one came a while ago: behind its queue a packet goes through another
 * one, of the VXLAN device, that nobody counts. One that has waited for half of `patience_ns` needs a
 * shorter pause, and after all of it none; that is counted, for packets may overtake each other then,
 * once.
 *
 * A full CPU map drops what it is given after this program has ended, and tells nobody. So packets are
 * counted by core, too, and one that finds the queue full is dropped here, before it is counted.
 *
 * What is under way is counted by slot, which no rule changes: so steer_count needs to know no rules,
 * and cannot take a packet for one of another bucket than steer did. When the rules change, the flows
 * of a slot that change their bucket with them do so together, on the same conditions. Until then the
 * rules before hold for that slot.
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
#define RULES_MAX 32
/* High buckets are a quarter, so no more slots share one (of 16 buckets or more). */
#define SHARE_MAX 4
#define NOBODY 0xffffffff
#define EMPTY_NS 1000000000ull
/* A queue that seems to be more than half full for so long may be miscounted. */
#define TRUST_NS 10000000000ull

struct bucket {
	__u32 core;		/* where its packets go now; NOBODY: to the stack, here */
	__u32 unused;
	__u64 last;		/* when the last one came */
	__u64 waits_since;	/* since when another core is wanted; 0: it is there */
};

struct slot {
	__u32 rules;		/* which ones hold: the number of their version */
	__u32 put;		/* packets put into a CPU map's queue */
	__u64 last;		/* when the last one came */
	__u64 waits_since;	/* since when newer rules wait; 0: they do not */
	__u64 parted;		/* when the last one came, or may have, whose bucket they change */
};

struct settings {
	__u64 settle_ns;	/* how long after the last packet a bucket may move, */
	__u64 hurry_ns;		/* and after half of the patience */
	__u64 patience_ns;	/* 0: for ever */
	__u32 buckets;		/* in use, the high ones included */
	__u32 high;		/* of these, for flows of high priority: the last ones */
	__u32 rules;		/* the version of the rules that is to hold, from 1 on */
	__u32 queue;		/* packets that a CPU map's queue takes; 0: nobody knows */
	__u16 port;		/* of VXLAN, in network order */
};

/* What rules look at. Each word stands for several things at once, so that few are compared. */
struct flow {
	__u32 hash;
	__u32 network;
	__u64 kind;		/* network, protocol and version of IP: see `kind` */
	__u64 mac[2];		/* here and below: of source and destination */
	__u64 port[2];		/* in network order, with HAS_PORT; 0: none */
	__u64 ip[2][2];
};

#define HAS_PORT 0x10000

/* A flow matches if it is alike in all bits of the masks. MAC may be that of either end, and so may
 * address and port, together. */
struct match {
	__u64 kind, kind_mask;
	__u64 mac, mac_mask;
	__u64 port, port_mask;
	__u64 ip[2], ip_mask[2];
};

struct rules {
	__u32 count;
	__u32 networks;		/* those of `high_networks` count, too */
	struct match of[RULES_MAX];
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
	__u64 reread;		/* slots for which newer rules hold now */
	__u64 reread_forced;	/* of these, those in which a flow changed its bucket without a pause */
	__u64 dropped;		/* VXLAN, for a core whose queue was full */
};

/* The CPU map's queue of a core; a cache line each, here and below. */
struct queue {
	__u32 put;		/* packets put into it */
	__u32 unused;
	__u64 roomy;		/* when it was last seen half empty */
	__u64 fill[6];
};

struct left {
	__u32 packets;
	__u32 unused;
	__u64 fill[7];
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Packets that have left the queues, by slot. Beside `slots`, for other cores write here. */
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

/* A version of the rules, and the one before it, by the lowest bit of its number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rules);
} all_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);	/* as many as there are cores, here and below: user space says so */
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* Packets that have left the queue of each core: written there only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct left);
} all_left SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
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

/* Network, protocol and version of IP in a word; a protocol of 0 is one, too. */
static __always_inline __u64 kind(__u32 network, __u8 protocol, __u8 version)
{
	return network | (__u64)(0x100 | protocol) << 32 | (__u64)version << 48;
}

static __always_inline __u64 mac(const __u8 *bytes)
{
	return *(__u32 *)(bytes + 2) | (__u64)*(__u16 *)bytes << 32;
}

static __always_inline __u64 pair(const __u32 *words)
{
	return words[0] | (__u64)words[1] << 32;
}

/* What two packets of one inner flow have alike: the hash, and what rules look at. */
static __always_inline void inner(void *at, void *end, __u32 network, struct flow *f)
{
	__u32 hash = mixed(0, network);
	struct ethhdr *eth = at;
	__be16 type;
	__u8 protocol = 0;

	__builtin_memset(f, 0, sizeof(*f));
	f->hash = hash;
	f->network = f->kind = network;
	if ((void *)(eth + 1) > end)
		return;
	f->mac[0] = mac(eth->h_source);
	f->mac[1] = mac(eth->h_dest);
	hash = mixed(mixed(hash, f->mac[1]), f->mac[0]);
	f->hash = hash;
	type = ethernet(&at, end);
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if ((void *)(ip + 1) > end || ip->ihl < 5)
			return;
		f->kind = kind(network, ip->protocol, 4);
		f->ip[0][0] = ip->saddr;
		f->ip[1][0] = ip->daddr;
		hash = mixed(mixed(hash, ip->saddr), ip->daddr);
		f->hash = hash;
		/* Fragments have no ports but the first one has: all go by their addresses. */
		if (ip->frag_off & bpf_htons(0x3fff))
			return;
		protocol = ip->protocol;
		at = (void *)ip + ip->ihl * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if ((void *)(ip + 1) > end)
			return;
		f->kind = kind(network, ip->nexthdr, 6);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			f->ip[0][half] = pair(ip->saddr.in6_u.u6_addr32 + 2 * half);
			f->ip[1][half] = pair(ip->daddr.in6_u.u6_addr32 + 2 * half);
		}
#pragma unroll
		for (int word = 0; word < 4; word++) {
			hash = mixed(hash, ip->saddr.in6_u.u6_addr32[word]);
			hash = mixed(hash, ip->daddr.in6_u.u6_addr32[word]);
		}
		f->hash = hash;
		protocol = ip->nexthdr;
		at = ip + 1;
	}
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) {
		__u16 *ports = at;

		if ((void *)(ports + 2) <= end) {
			f->port[0] = HAS_PORT | ports[0];
			f->port[1] = HAS_PORT | ports[1];
			f->hash = mixed(hash, ports[0] | (__u32)ports[1] << 16);
		}
	}
}

/* Reads a packet; its slot, or NOBODY. */
static __always_inline __u32 slot_of(struct xdp_md *ctx, const struct settings *set, struct flow *f)
{
	void *at = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct vxlan *vxlan;
	__u32 hash, slot;

	if (!outer(&at, end, set->port))
		return NOBODY;
	vxlan = at;
	if ((void *)(vxlan + 1) > end || !(vxlan->flags & bpf_htonl(VXLAN_HAS_NETWORK)))
		return NOBODY;
	inner(vxlan + 1, end, bpf_ntohl(vxlan->network) >> 8, f);
	if (set->high >= set->buckets)
		return NOBODY;
	hash = f->hash ^ f->hash >> 16;
	slot = hash % (set->buckets - set->high);
	return slot < BUCKETS ? slot : NOBODY;
}

/* 1 if any bit is set. Without a branch: with one for each rule, the verifier would have to follow
 * more paths than it is ready to. */
static __always_inline __u64 any(__u64 bits)
{
	__u64 negative = -bits;

	asm volatile("" : "+r"(negative));
	return (bits | negative) >> 63;
}

static __always_inline __u64 differs(const struct flow *f, const struct match *m)
{
	__u64 kind = (f->kind ^ m->kind) & m->kind_mask;
	__u64 mac = 1, end = 1;

#pragma unroll
	for (int side = 0; side < 2; side++) {
		mac &= any((f->mac[side] ^ m->mac) & m->mac_mask);
		end &= any(((f->port[side] ^ m->port) & m->port_mask) |
			   ((f->ip[side][0] ^ m->ip[0]) & m->ip_mask[0]) |
			   ((f->ip[side][1] ^ m->ip[1]) & m->ip_mask[1]));
	}
	return any(kind) | mac | end;
}

/* Whether a version of the rules says that a flow is of high priority. */
static __noinline int is_high(const struct flow *f, __u32 version)
{
	__u32 which = version & 1, network = f->network;
	struct rules *rules = bpf_map_lookup_elem(&all_rules, &which);
	__u64 misses = 1;

	if (!rules)
		return 0;
	for (int at = 0; at < RULES_MAX && at < rules->count; at++)
		misses &= differs(f, &rules->of[at]);
	return !misses || (rules->networks && bpf_map_lookup_elem(&high_networks, &network));
}

/* How long ago something was. Other receive cores write these times, too, and one that looked at the
 * clock a little later may have stored its own before this one reads it: then no time has passed. */
static __always_inline __u64 since(__u64 now, __u64 then)
{
	return now > then ? now - then : 0;
}

/* Stores a time, unless another core has stored a later one. One that was kept up between the clock
 * and here, for as long as a hypervisor likes, would else make a pause out of that. */
static __always_inline void touch(__u64 *last, __u64 now)
{
	if (*(volatile __u64 *)last < now)
		*(volatile __u64 *)last = now;
}

/* How many packets are in a queue. What has left it is read first: what comes and leaves meanwhile
 * then counts as being there. Below zero only if another core has miscounted. */
static __always_inline __s32 inside(const __u32 *put, const __u32 *out)
{
	__u32 left = *(volatile __u32 *)out;

	return *(volatile __u32 *)put - left;
}

/* Whether packets of a slot may be in a queue. What was lost on the way into one never leaves it:
 * after a second, nothing is under way. */
static __always_inline int is_under_way(const struct slot *s, __u32 *out, __u64 now)
{
	return since(now, s->last) < EMPTY_NS && inside(&s->put, out) > 0;
}

/* Whether the queue of a core takes another packet. The CPU map has room for some more, because it
 * frees the places of packets that have left a few at a time, and because several receive cores may
 * find the last place here at once.
 *
 * Where the count says for long that it is never half empty, a driver may have lost packets on the
 * way in. It begins anew then, and what there really was counts too little, so that the CPU map may
 * drop some; never too much, which would leave a short queue. */
static __always_inline int has_room(struct queue *q, const __u32 *out, __u64 now, __u32 most)
{
	__s32 count = inside(&q->put, out);

	if (count >= 0 && count < most / 2) {
		q->roomy = now;
		return 1;
	}
	if (count >= 0 && (count < most || !most))
		return 1;
	if (count >= 0 && since(now, q->roomy) < TRUST_NS)
		return 0;
	q->put = *(volatile __u32 *)out;
	q->roomy = now;
	return 1;
}

/* Whether packets of a bucket may be in a queue: of its slot, or of all slots that share it. */
static __always_inline int waits_for_queue(__u32 id, __u64 now, const struct settings *set)
{
	__u32 low = set->buckets - set->high, at = id < low ? id : id - low;

	for (int nth = 0; nth < SHARE_MAX && at < low; nth++) {
		struct slot *s = bpf_map_lookup_elem(&slots, &at);
		__u32 *out = bpf_map_lookup_elem(&taken, &at);

		if (!s || !out || is_under_way(s, out, now))
			return 1;
		if (id < low)
			break;
		at += set->high;
	}
	return 0;
}

/* How long a pause is needed by one that has waited for so long. */
static __always_inline __u64 pause_of(__u64 waited, const struct settings *set)
{
	return set->patience_ns && waited * 2 >= set->patience_ns ? set->hurry_ns : set->settle_ns;
}

/* Puts newer rules in force for a slot if that may be now. It may if no flow that they send to
 * another bucket has come for a while, and no packet is in a queue. */
static __always_inline void reread(struct slot *s, __u32 *out, const struct flow *f, __u64 now,
				   const struct settings *set, struct counts *count)
{
	__u64 waited;
	int is_free;

	/* There are no rules for it any more: it was silent for longer than two versions were apart. */
	if (set->rules - s->rules > 1)
		goto done;
	if (!s->waits_since) {
		s->waits_since = now;
		s->parted = s->last;
	}
	waited = since(now, s->waits_since);
	is_free = since(now, s->parted) >= pause_of(waited, set) && !is_under_way(s, out, now);
	if (!is_free && (!set->patience_ns || waited < set->patience_ns)) {
		if (is_high(f, s->rules) != is_high(f, set->rules))
			touch(&s->parted, now);
		return;
	}
	count->reread++;
	if (!is_free)
		count->reread_forced++;
done:
	s->rules = set->rules;
	s->waits_since = 0;
}

/* Moves a bucket to the wanted core if it may go now. */
static __always_inline void settle(struct bucket *b, __u32 id, __u64 now,
				   const struct settings *set, struct counts *count)
{
	__u32 *core = bpf_map_lookup_elem(&wanted, &id);
	/* The entries begin with zero, which stands for nobody. */
	__u32 there = core && *core ? *core - 1 : NOBODY;
	__u64 waited;

	if (b->core == there) {
		b->waits_since = 0;
		return;
	}
	if (!b->waits_since)
		b->waits_since = now;
	waited = since(now, b->waits_since);
	if (since(now, b->last) < pause_of(waited, set) || waits_for_queue(id, now, set)) {
		if (!set->patience_ns || waited < set->patience_ns)
			return;
		/* What is still under way is not waited for again. */
		count->forced++;
	}
	b->core = there;
	b->waits_since = 0;
	count->moved++;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	__u32 zero = 0, at, id, core, *out;
	__u64 now;
	struct settings *set = bpf_map_lookup_elem(&config, &zero);
	struct counts *count = bpf_map_lookup_elem(&totals, &zero);
	struct flow f;
	struct slot *s;
	struct bucket *b;
	struct work *w;
	struct queue *q;
	struct left *left;
	__s32 under_way;
	long verdict;

	if (!set || !count)
		return XDP_PASS;
	id = at = slot_of(ctx, set, &f);
	s = bpf_map_lookup_elem(&slots, &at);
	out = bpf_map_lookup_elem(&taken, &at);
	if (!s || !out) {
		count->other++;
		return XDP_PASS;
	}
	now = bpf_ktime_get_ns();
	/* Only if it is wrong, and `last` is read after it: another core may just have put one in. */
	under_way = inside(&s->put, out);
	if (under_way < 0 || (under_way > 0 && since(now, *(volatile __u64 *)&s->last) >= EMPTY_NS))
		s->put = *(volatile __u32 *)out;
	if (set->high) {
		if (s->rules != set->rules)
			reread(s, out, &f, now, set, count);
		if (is_high(&f, s->rules))
			id = set->buckets - set->high + at % set->high;
	}
	b = bpf_map_lookup_elem(&state, &id);
	w = bpf_map_lookup_elem(&seen, &id);
	if (!b || !w)
		return XDP_PASS;
	w->packets++;
	w->bytes += ctx->data_end - ctx->data;
	/* Zero-filled: it has never been seen. */
	if (!b->last)
		b->core = NOBODY;
	settle(b, id, now, set, count);
	touch(&b->last, now);
	touch(&s->last, now);
	core = *(volatile __u32 *)&b->core;
	q = bpf_map_lookup_elem(&queues, &core);
	left = bpf_map_lookup_elem(&all_left, &core);
	if (!q || !left) {
		count->unplaced++;
		return XDP_PASS;
	}
	if (!has_room(q, &left->packets, now, set->queue)) {
		count->dropped++;
		return XDP_DROP;
	}
	verdict = bpf_redirect_map(&cores, core, XDP_PASS);
	if (verdict == XDP_REDIRECT) {
		__sync_fetch_and_add(&q->put, 1);
		__sync_fetch_and_add(&s->put, 1);
		count->steered++;
	}
	return verdict;
}

/* On the chosen core: the packet has left the queue. */
SEC("xdp/cpumap")
int steer_count(struct xdp_md *ctx)
{
	__u32 zero = 0, at, core = bpf_get_smp_processor_id(), *out;
	struct settings *set = bpf_map_lookup_elem(&config, &zero);
	struct left *left = bpf_map_lookup_elem(&all_left, &core);
	struct flow f;

	if (left)
		left->packets++;
	if (!set)
		return XDP_PASS;
	at = slot_of(ctx, set, &f);
	out = bpf_map_lookup_elem(&taken, &at);
	if (out)
		__sync_fetch_and_add(out, 1);
	return XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
