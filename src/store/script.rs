//! Lua scripts: files, joined with the parts they share, and known to the server by their hash.
//!
//! Layer 2. A script is declared where it is called: `script!(SETTLE, "settle", allow_oom, ["clock"])`
//! joins a `#!lua` line, `scripts/parts/clock.lua` and `scripts/settle.lua`. The files have no
//! shebang of their own. `Conn::run` sends them.

use std::sync::OnceLock;

use bytes::Bytes;
use fred::util::sha1_hash;

/// What a server with no memory left does with a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// It adds work: refused as a whole, before its first write.
    AddsWork,
    /// It finishes, moves or frees work: it runs, so that a full server can drain.
    AllowOom,
}

impl Memory {
    const fn shebang(self) -> &'static str {
        match self {
            Self::AddsWork => "#!lua\n",
            Self::AllowOom => "#!lua flags=allow-oom\n",
        }
    }
}

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    memory: Memory,
    parts: &'static [&'static str],
    source: &'static str,
    joined: OnceLock<Joined>,
}

#[derive(Debug)]
struct Joined {
    body: Bytes,
    sha: Bytes,
}

impl Script {
    /// Used by [`script!`](crate::store::script::script), so that name and files agree.
    pub(crate) const fn new(
        name: &'static str,
        memory: Memory,
        parts: &'static [&'static str],
        source: &'static str,
    ) -> Self {
        Self {
            name,
            memory,
            parts,
            source,
            joined: OnceLock::new(),
        }
    }

    fn joined(&self) -> &Joined {
        self.joined.get_or_init(|| {
            let mut body = String::from(self.memory.shebang());
            for part in self.parts.iter().chain([&self.source]) {
                body.push_str(part);
                if !part.ends_with('\n') {
                    body.push('\n');
                }
            }
            Joined {
                sha: Bytes::from(sha1_hash(&body)),
                body: Bytes::from(body),
            }
        })
    }

    /// The text the server runs.
    pub(super) fn body(&self) -> Bytes {
        self.joined().body.clone()
    }

    /// The name the server knows it by.
    pub(super) fn sha(&self) -> Bytes {
        self.joined().sha.clone()
    }
}

/// Declares a script from files below `src/store/scripts`.
macro_rules! script {
    ($(#[$docs:meta])* $name:ident, $file:literal, adds_work, [$($part:literal),* $(,)?]) => {
        $crate::store::script::script!(@ $(#[$docs])* $name, $file, AddsWork, [$($part),*]);
    };
    ($(#[$docs:meta])* $name:ident, $file:literal, allow_oom, [$($part:literal),* $(,)?]) => {
        $crate::store::script::script!(@ $(#[$docs])* $name, $file, AllowOom, [$($part),*]);
    };
    (@ $(#[$docs:meta])* $name:ident, $file:literal, $memory:ident, [$($part:literal),*]) => {
        $(#[$docs])*
        pub(crate) static $name: $crate::store::script::Script = $crate::store::script::Script::new(
            $file,
            $crate::store::script::Memory::$memory,
            &[$(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/src/store/scripts/parts/", $part, ".lua"
            ))),*],
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/scripts/", $file, ".lua")),
        );
    };
}
pub(crate) use script;

#[cfg(test)]
mod tests {
    use super::*;

    static JOINED: Script = Script::new(
        "two",
        Memory::AllowOom,
        &["local a = 1", "local b = 2\n"],
        "return a + b",
    );

    #[test]
    fn parts_come_after_the_shebang_and_before_the_source() {
        assert_eq!(
            JOINED.body(),
            "#!lua flags=allow-oom\nlocal a = 1\nlocal b = 2\nreturn a + b\n"
        );
        assert_eq!(JOINED.sha().len(), 40);
    }
}
