//! What the kernel says of this process (Linux; elsewhere nothing is known).

use std::fs;

/// USER_HZ, which is 100 on every Linux of our targets.
const TICKS: f64 = 100.0;

/// Resources in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    pub(super) resident_bytes: i64,
    pub(super) cpu_seconds: f64,
    pub(super) open_fds: i64,
    pub(super) threads: i64,
}

pub(super) fn usage() -> Option<Usage> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fds = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(Usage {
        resident_bytes: field(&status, "VmRSS:")?.checked_mul(1024)?,
        cpu_seconds: cpu(&stat)?,
        // The folder itself is open while it is read.
        open_fds: i64::try_from(fds).ok()? - 1,
        threads: field(&status, "Threads:")?,
    })
}

fn field(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `proc_pid_stat(5)`; the second field may hold spaces and brackets.
fn cpu(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_files() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t7\n";
        assert_eq!(
            (field(status, "VmRSS:"), field(status, "Threads:"), field(status, "No:")),
            (Some(2048), Some(7), None)
        );
        let stat = "12 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0";
        assert_eq!(cpu(stat), Some(3.0));
        assert_eq!(cpu("12 (a) S 1"), None);
    }
}
