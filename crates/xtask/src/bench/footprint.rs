//! What processes take of the machine: time on a core, and memory.

use std::path::Path;
use std::time::Duration;

/// The share of one core that the processes used over a while, from the scheduler's own nanoseconds.
pub fn cpu_share(processes: &[u32], over: Duration) -> f64 {
    let before = on_core(processes);
    std::thread::sleep(over);
    let used = on_core(processes).saturating_sub(before);
    used as f64 / over.as_nanos() as f64
}

/// Resident memory in bytes, shared pages of memory drives included only where they are mapped.
pub fn resident(processes: &[u32]) -> u64 {
    let of = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/status")).ok();
    processes.iter().filter_map(|id| resident_in(&of(id)?)).sum()
}

/// Nanoseconds that all threads of the processes have run.
pub fn on_core(processes: &[u32]) -> u64 {
    let threads = processes.iter().flat_map(|id| {
        let folder = Path::new("/proc").join(id.to_string()).join("task");
        std::fs::read_dir(folder).into_iter().flatten().flatten()
    });
    let ran = threads.filter_map(|thread| {
        let statistics = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        statistics.split_whitespace().next()?.parse::<u64>().ok()
    });
    ran.sum()
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status() {
        assert_eq!(resident_in("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_in("Name:\ta kernel thread\n"), None);
    }

    #[test]
    fn a_busy_process_is_seen_and_an_absent_one_is_not() {
        let busy = std::thread::spawn(|| {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                std::hint::black_box(0);
            }
        });
        let share = cpu_share(&[std::process::id()], Duration::from_millis(200));
        busy.join().unwrap();
        assert!(share > 0.01, "{share}");
        assert_eq!(cpu_share(&[u32::MAX], Duration::from_millis(1)), 0.0);
    }
}
