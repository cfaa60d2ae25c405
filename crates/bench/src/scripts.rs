//! The library's own scripts, so that the limit does the same work in Redis as the library.
//!
//! The files are the library's; how they are joined is written down here a second time. Each run of
//! `ratio` asks the server that the library used whether it knows the very same scripts, and a test
//! does so too: a list that differs is an error, not a wrong number.

use crate::Result;
use crate::wire::{Token, Wire, command};

/// A script as the library sends it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    shebang: &'static str,
    files: &'static [&'static str],
}

macro_rules! file {
    ($path:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../src/store/scripts/",
            $path
        ))
    };
}

const ADDS_WORK: &str = "#!lua\n";
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

pub(crate) static ENQUEUE: Script = Script {
    name: "enqueue",
    shebang: ADDS_WORK,
    files: &[
        file!("parts/look.lua"),
        file!("parts/clock.lua"),
        file!("parts/count.lua"),
        file!("parts/due.lua"),
        file!("parts/record.lua"),
        file!("enqueue.lua"),
    ],
};

pub(crate) static SETTLE: Script = Script {
    name: "settle",
    shebang: ALLOW_OOM,
    files: &[
        file!("parts/look.lua"),
        file!("parts/fence.lua"),
        file!("parts/clock.lua"),
        file!("parts/count.lua"),
        file!("parts/notify.lua"),
        file!("parts/record.lua"),
        file!("parts/forget.lua"),
        file!("settle.lua"),
    ],
};

pub(crate) static ENSURE: Script = Script {
    name: "ensure",
    shebang: ALLOW_OOM,
    files: &[
        file!("parts/look.lua"),
        file!("parts/fence.lua"),
        file!("parts/clock.lua"),
        file!("parts/grace.lua"),
        file!("ensure.lua"),
    ],
};

impl Script {
    fn body(&self) -> String {
        let mut body = self.shebang.to_owned();
        for file in self.files {
            body.push_str(file);
            if !file.ends_with('\n') {
                body.push('\n');
            }
        }
        body
    }

    /// Makes the server know it, and answers the name the server gives it.
    pub(crate) fn load(&self, wire: &mut Wire) -> Result<Vec<u8>> {
        command(&mut wire.out, &[b"SCRIPT", b"LOAD", self.body().as_bytes()]);
        wire.send()?;
        let sha = wire.string()?;
        Ok(wire.bytes(&sha).to_vec())
    }
}

/// What a server calls the scripts: their SHA1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Names {
    pub(crate) enqueue: Vec<u8>,
    pub(crate) settle: Vec<u8>,
    pub(crate) ensure: Vec<u8>,
}

impl Names {
    /// Makes a server know all of them.
    pub(crate) fn load(wire: &mut Wire) -> Result<Self> {
        Ok(Self {
            enqueue: ENQUEUE.load(wire)?,
            settle: SETTLE.load(wire)?,
            ensure: ENSURE.load(wire)?,
        })
    }

    /// Whether a server that only the library used knows the very same scripts.
    ///
    /// # Errors
    /// It does not: the parts listed here are not those of the library.
    pub(crate) fn check_known(&self, port: u16) -> Result<()> {
        let mut wire = Wire::connect(port)?;
        let scripts = [
            (&ENQUEUE, &self.enqueue),
            (&SETTLE, &self.settle),
            (&ENSURE, &self.ensure),
        ];
        for (script, sha) in scripts {
            command(&mut wire.out, &[b"SCRIPT", b"EXISTS", sha]);
            wire.send()?;
            wire.array()?;
            if wire.token()? != Token::Int(1) {
                return Err(format!(
                    "the library uses another script {0} than this program: compare the parts in \
                     crates/bench/src/scripts.rs with src/store/{0}.rs",
                    script.name
                )
                .into());
            }
        }
        Ok(())
    }
}
