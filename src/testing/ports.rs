//! Free loopback ports that no other test takes, in this process or another.
//!
//! A port is reserved by a locked file, which the system unlocks when the process ends, however it
//! ends. So a server that is down for a moment finds its port free when it comes back. Part of
//! `testing`; called by `process`.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use super::TestError;

/// Below the ports that Linux and macOS give to outgoing connections, so that no connection of a
/// test sits on the port of a stopped server; its cluster bus ([`BUS`] above) is below them too.
const PORTS: Range<u16> = 10_240..22_000;
const BUS: u16 = 10_000;
const TRIES: usize = 500;

/// A port held for one server.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Locked as long as it is open. `None` where the directory cannot be written: then only the
    /// bind below protects, and `process` tries another port when the server finds it taken.
    _lock: Option<File>,
}

/// Reserves a free port.
pub(crate) fn reserve() -> Result<Port, TestError> {
    let directory = std::env::temp_dir().join("streamfleet-test-ports");
    let writable = fs::create_dir_all(&directory).is_ok();
    for _ in 0..TRIES {
        let number = fastrand::u16(PORTS);
        let lock = if writable {
            match File::create(directory.join(number.to_string())) {
                Ok(file) if file.try_lock().is_ok() => Some(file),
                // Made by another user of the machine.
                Err(_) => None,
                Ok(_) => continue,
            }
        } else {
            None
        };
        if is_free(number) && is_free(number + BUS) {
            return Ok(Port {
                number,
                _lock: lock,
            });
        }
    }
    Err(TestError::Io {
        what: "find a free port",
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_twice() {
        let held: Vec<Port> = (0..200).map(|_| reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = held.iter().map(|port| port.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.len());
    }
}
