//! Names of the numbers in the program's counters: reasons, and places in the kernel.

use std::collections::BTreeMap;
use std::fs;

use sluice_btf::Btf;

/// Names of the running kernel. A name that cannot be read is replaced by its number.
pub(crate) struct Names {
    reasons: BTreeMap<u32, String>,
    /// Functions of the kernel by start address.
    functions: BTreeMap<u64, String>,
}

impl Names {
    pub(crate) fn of_this_kernel() -> Self {
        let btf = sluice_btf::running_kernel().unwrap_or_default();
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Self {
            reasons: Btf::parse(&btf)
                .and_then(|btf| btf.enumeration("skb_drop_reason"))
                .unwrap_or_default(),
            functions: functions(&symbols),
        }
    }

    /// Name of a reason in the kernel's source, without `SKB_DROP_REASON_`.
    pub(crate) fn reason(&self, reason: u32) -> String {
        let name = self.reasons.get(&reason).map(|name| {
            let short = name.strip_prefix("SKB_DROP_REASON_");
            short.or_else(|| name.strip_prefix("SKB_")).unwrap_or(name).to_owned()
        });
        name.unwrap_or_else(|| format!("reason {reason}"))
    }

    /// Name of the function at an address.
    pub(crate) fn function(&self, address: u64) -> String {
        let before = self.functions.range(..=address).next_back();
        before.map_or_else(|| format!("{address:#x}"), |(_, name)| name.clone())
    }
}

/// Reads `/proc/kallsyms`. A process that may not see addresses reads zeros, and gets no names.
fn functions(text: &str) -> BTreeMap<u64, String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        (is_code && address != 0).then_some((address, words.next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_reason_and_function_names_resolved_unknown_numeric() {
        let reasons = [(2, "SKB_DROP_REASON_FULL_RING"), (1, "SKB_CONSUMED")];
        let names = Names {
            reasons: reasons.map(|(number, name)| (number, name.to_owned())).into(),
            functions: functions(
                "0000000000000000 T hidden\nffffffff81000000 T tun_net_xmit\n\
                 ffffffff81000100 d data\nffffffff81000200 t udp_queue [udp]\n",
            ),
        };
        assert_eq!(names.reason(2), "FULL_RING");
        assert_eq!(names.reason(1), "CONSUMED");
        assert_eq!(names.reason(77), "reason 77");
        assert_eq!(names.function(0xffff_ffff_8100_01ff), "tun_net_xmit");
        assert_eq!(names.function(0xffff_ffff_8100_0200), "udp_queue");
        assert_eq!(names.function(16), "0x10");
    }
}
