// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Counts the packets that the kernel drops, by namespace, device, reason and place in the kernel.
 *
 *   kfree_skb(skb, location, reason, rx_sk) ── tracepoint ──▶ drops[namespace, device, reason, location]++
 *
 * The kernel frees a packet that came to its end by consume_skb, and one that was lost or refused by
 * kfree_skb. The receiving socket, where there is one, says the namespace: a packet in a socket's queue
 * has numbers where its device was. Before a socket it is the packet's device, and before that the
 * sending socket.
 *
 * Reading kernel memory is left to programs of a licence that fits the kernel's, hence the one above.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define PLACES 4096
/* Kernel addresses begin here; what stands in a packet's place for a device may be no address. */
#define KERNEL (1ull << 63)

/* As much as is read of the kernel's structures; where it lies says the running kernel's BTF. */
#define OF_KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} OF_KERNEL;

struct net {
	struct ns_common ns;
} OF_KERNEL;

typedef struct {
	struct net *net;
} OF_KERNEL possible_net_t;

struct net_device {
	int ifindex;
	char name[16];
	possible_net_t nd_net;
} OF_KERNEL;

struct sock_common {
	possible_net_t skc_net;
} OF_KERNEL;

struct sock {
	struct sock_common __sk_common;
} OF_KERNEL;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	int skb_iif;
} OF_KERNEL;

struct place {
	__u32 netns;		/* inode; 0: not known */
	__u32 device;		/* index; 0: not known */
	__u32 reason;		/* enum skb_drop_reason */
	__u32 unused;
	__u64 location;		/* in the kernel's code */
};

struct count {
	__u64 frames;
	__u64 last;		/* CLOCK_MONOTONIC */
	char device[16];	/* its name; empty: not known */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLACES);
	__type(key, struct place);
	__type(value, struct count);
} drops SEC(".maps");

/* Drops for which there was no room above. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} missed SEC(".maps");

/* A field of the kernel's, or 0. */
#define READ(of, field)                                                                                        \
	({                                                                                                     \
		typeof((of)->field) _value = 0;                                                                \
		bpf_probe_read_kernel(&_value, sizeof(_value), __builtin_preserve_access_index(&(of)->field)); \
		_value;                                                                                        \
	})

static __always_inline __u32 inode(struct net *net)
{
	return net ? READ(net, ns.inum) : 0;
}

static __always_inline int is_kernel(const void *at)
{
	return ((__u64)at & KERNEL) != 0;
}

SEC("raw_tp/kfree_skb")
int count_drops(struct bpf_raw_tracepoint_args *ctx)
{
	struct sk_buff *skb = (void *)ctx->args[0];
	/* The fourth argument came with Linux 6.11; an older kernel refuses to attach this. */
	struct sock *receiver = (void *)ctx->args[3];
	struct place place = { .location = ctx->args[1], .reason = (__u32)ctx->args[2] };
	struct count first = { .frames = 1, .last = bpf_ktime_get_ns() };
	struct net_device *device = READ(skb, dev);
	struct sock *sender = READ(skb, sk);
	struct count *count;

	place.device = (__u32)READ(skb, skb_iif);
	if (is_kernel(device)) {
		place.device = (__u32)READ(device, ifindex);
		place.netns = inode(READ(device, nd_net.net));
		bpf_probe_read_kernel(first.device, sizeof(first.device),
				      __builtin_preserve_access_index(&device->name));
	}
	if (is_kernel(receiver))
		place.netns = inode(READ(receiver, __sk_common.skc_net.net));
	else if (!place.netns && is_kernel(sender))
		place.netns = inode(READ(sender, __sk_common.skc_net.net));
	count = bpf_map_lookup_elem(&drops, &place);
	if (!count) {
		if (!bpf_map_update_elem(&drops, &place, &first, BPF_NOEXIST))
			return 0;
		/* Another core may have been first. */
		count = bpf_map_lookup_elem(&drops, &place);
	}
	if (count) {
		__sync_fetch_and_add(&count->frames, 1);
		count->last = first.last;
		return 0;
	}
	__u32 zero = 0;
	__u64 *all = bpf_map_lookup_elem(&missed, &zero);
	if (all)
		__sync_fetch_and_add(all, 1);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
