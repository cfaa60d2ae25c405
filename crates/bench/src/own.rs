//! What this process used.

use std::fs;

use crate::Result;

/// User and system time of this process.
pub(crate) fn cpu_seconds() -> Result<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program may hold blanks; the fields are counted from behind it.
    let (_, fields) = stat
        .rsplit_once(')')
        .ok_or("/proc/self/stat has another form")?;
    let mut times = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<f64>);
    let (user, system) = (
        times.next().ok_or("no user time")??,
        times.next().ok_or("no system time")??,
    );
    Ok((user + system) / TICKS_PER_SECOND)
}

/// The most memory it had at a time, in bytes.
pub(crate) fn peak_rss() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
