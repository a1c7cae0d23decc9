//! Metrics of the process, from `/proc`; only on Linux.

use std::fs;

use super::{MetricDesc, TextExposition};

const CPU: MetricDesc<0> =
    MetricDesc::counter("process_cpu_seconds_total", "Seconds of CPU time, user and system.", []);
const RESIDENT: MetricDesc<0> = MetricDesc::gauge("process_resident_memory_bytes", "Bytes of memory in use.", []);
const VIRTUAL: MetricDesc<0> = MetricDesc::gauge("process_virtual_memory_bytes", "Bytes of address space.", []);
const STARTED: MetricDesc<0> =
    MetricDesc::gauge("process_start_time_seconds", "Start time of the process in seconds since 1970.", []);
const OPEN_FDS: MetricDesc<0> = MetricDesc::gauge("process_open_fds", "Open file descriptors.", []);
const MAX_FDS: MetricDesc<0> = MetricDesc::gauge("process_max_fds", "File descriptors that may be open.", []);

/// Ticks per second in `/proc`: fixed by Linux's ABI.
const TICKS: f64 = 100.0;

pub(super) fn collect(out: &mut TextExposition) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let stat = ProcessStat::parse(&read("/proc/self/stat"));
    let status = read("/proc/self/status");
    let values = [
        (CPU, stat.as_ref().map(|stat| stat.cpu_ticks / TICKS)),
        (RESIDENT, value_of(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024.0)),
        (VIRTUAL, value_of(&status, "VmSize:").map(|kilobytes| kilobytes * 1024.0)),
        (STARTED, stat.zip(value_of(&read("/proc/stat"), "btime")).map(|(stat, boot)| boot + stat.start_ticks / TICKS)),
        (OPEN_FDS, fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64)),
        (MAX_FDS, value_of(&read("/proc/self/limits"), "Max open files")),
    ];
    for (desc, value) in values {
        if let Some(value) = value {
            out.sample(&desc, [], value);
        }
    }
}

/// Two numbers of `/proc/self/stat`.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    cpu_ticks: f64,
    start_ticks: f64,
}

impl ProcessStat {
    /// The program name is in parentheses and may contain anything, so fields are counted from the last parenthesis.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<f64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)? })
    }
}

/// The first number after a key at the beginning of a line.
fn value_of(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 500 0 0 0 150 50 0 0 20 0 4 0 12345 1000 20 18446744073709551615";
        assert_eq!(ProcessStat::parse(text), Some(ProcessStat { cpu_ticks: 200.0, start_ticks: 12345.0 }));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_began_after_1970() {
        let mut out = TextExposition::default();
        collect(&mut out);
        let text = out.finish();
        let value = |name| value_of(&text, name).unwrap_or_default();
        assert!(value("process_resident_memory_bytes") > 1e5, "{text}");
        assert!(value("process_start_time_seconds") > 1.6e9, "{text}");
        assert!(value("process_open_fds") >= 3.0, "{text}");
        assert!(value("process_max_fds") > 0.0, "{text}");
    }
}
