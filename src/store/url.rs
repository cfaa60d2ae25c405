//! The address of Redis: read, checked, and shown without its password.
//!
//! Layer 2, called when a client or server connects. fred's own parser ignores what it does not
//! know, so a misspelt parameter would be silently dropped; this one refuses it by name. No text
//! of an error ever holds the part that may be a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{ConnectError, shown};

/// The most hosts an address may name.
const MAX_HOSTS: usize = 64;

/// A checked address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u8>,
    pub(super) place: Place,
}

/// What kind of server, and where.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Place {
    One(Host),
    Cluster(Vec<Host>),
    Sentinel {
        hosts: Vec<Host>,
        service: String,
        user: Option<String>,
        password: Option<String>,
    },
    Unix(PathBuf),
}

/// A host as it is resolved: an IPv6 address keeps its brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl RedisUrl {
    /// Whether it names a cluster.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// How many hosts may have to be tried one after the other.
    pub(super) const fn hosts(&self) -> usize {
        match &self.place {
            Place::One(_) | Place::Unix(_) => 1,
            Place::Cluster(hosts) | Place::Sentinel { hosts, .. } => hosts.len(),
        }
    }

    /// What must not stand in any text.
    pub(super) fn secrets(&self) -> [&str; 2] {
        let sentinel = match &self.place {
            Place::Sentinel {
                password: Some(password),
                ..
            } => password.as_str(),
            _ => "",
        };
        [self.password.as_deref().unwrap_or(""), sentinel]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Cluster,
    Sentinel,
    Unix,
}

fn scheme(name: &str) -> Option<(Kind, bool)> {
    Some(match name {
        "redis" | "valkey" => (Kind::One, false),
        "rediss" | "valkeys" => (Kind::One, true),
        "redis-cluster" | "valkey-cluster" => (Kind::Cluster, false),
        "rediss-cluster" | "valkeys-cluster" => (Kind::Cluster, true),
        "redis-sentinel" | "valkey-sentinel" => (Kind::Sentinel, false),
        "rediss-sentinel" | "valkeys-sentinel" => (Kind::Sentinel, true),
        "unix" | "redis+unix" | "valkey+unix" => (Kind::Unix, false),
        _ => return None,
    })
}

impl FromStr for RedisUrl {
    type Err = ConnectError;

    fn from_str(url: &str) -> Result<Self, ConnectError> {
        parse(url).map_err(ConnectError::Url)
    }
}

fn parse(url: &str) -> Result<RedisUrl, String> {
    let (name, rest) = url
        .split_once("://")
        .ok_or("it has no scheme; write redis://host:port")?;
    let (kind, tls) = scheme(name).ok_or(
        "its scheme is not one of redis, rediss, redis-cluster, rediss-cluster, redis-sentinel, \
         rediss-sentinel, redis+unix, unix",
    )?;
    if tls && !cfg!(feature = "tls") {
        return Err(format!("{name}:// needs the feature `tls` of streamfleet"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let cut = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(cut);
    let (credentials, address) = match authority.rsplit_once('@') {
        Some((credentials, address)) => (Some(credentials), address),
        None => (None, authority),
    };
    // An unescaped `/` or `?` in a password ends the authority early; what is left of the password
    // would be taken for a host, a port or a database, and shown.
    if kind != Kind::Unix && (path.contains('@') || query.contains('@')) || rest.contains('#') {
        return Err("the characters / ? # @ in a user or password must be percent-encoded".into());
    }
    let (user, password) = match credentials {
        Some(credentials) => parse_credentials(credentials)?,
        None => (None, None),
    };
    let mut query = Query::parse(query, kind)?;
    let (place, database) = match kind {
        Kind::Unix => {
            if credentials.is_none() && !authority.is_empty() {
                return Err("the path of a socket must be absolute: unix:///path".into());
            }
            let path = decode("path", path)?;
            if path.len() < 2 {
                return Err("the path of the socket is missing: unix:///path".into());
            }
            (Place::Unix(PathBuf::from(path)), query.database)
        }
        _ => {
            let port = if kind == Kind::Sentinel {
                26_379
            } else {
                6_379
            };
            let first = parse_host(address, port)?;
            let mut hosts = vec![first.clone()];
            for node in std::mem::take(&mut query.nodes) {
                hosts.push(parse_host(&node, port)?);
            }
            let database = parse_database(path)?;
            (place_of(kind, first, hosts, query)?, database)
        }
    };
    if kind == Kind::Cluster && database.is_some_and(|number| number != 0) {
        return Err("a cluster has no database numbers".into());
    }
    Ok(RedisUrl {
        tls,
        user,
        password,
        database: database.filter(|number| *number != 0),
        place,
    })
}

fn place_of(kind: Kind, first: Host, hosts: Vec<Host>, query: Query) -> Result<Place, String> {
    Ok(match kind {
        Kind::Cluster => Place::Cluster(hosts),
        Kind::Sentinel => {
            let service = query
                .service
                .ok_or("a sentinel address needs the name of the service: ?service=NAME")?;
            if query.user.is_some() && query.password.is_none() {
                return Err("sentinelUsername needs sentinelPassword".into());
            }
            Place::Sentinel {
                hosts,
                service,
                user: query.user,
                password: query.password,
            }
        }
        Kind::One | Kind::Unix => Place::One(first),
    })
}

/// What may stand after the `?`.
#[derive(Default)]
struct Query {
    nodes: Vec<String>,
    service: Option<String>,
    user: Option<String>,
    password: Option<String>,
    database: Option<u8>,
}

impl Query {
    fn parse(text: &str, kind: Kind) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match (name, kind) {
                ("node", Kind::Cluster | Kind::Sentinel) => {
                    if query.nodes.len() + 1 >= MAX_HOSTS {
                        return Err(format!("it names more than {MAX_HOSTS} hosts"));
                    }
                    query.nodes.push(decode("node", value)?);
                    continue;
                }
                ("db", Kind::Unix) => {
                    query.database = parse_database(value)?;
                    continue;
                }
                ("service" | "sentinelServiceName", Kind::Sentinel) => &mut query.service,
                ("sentinelUsername", Kind::Sentinel) => &mut query.user,
                ("sentinelPassword", Kind::Sentinel) => &mut query.password,
                _ => return Err(format!("parameter {} is not known here", shown(name))),
            };
            if place.is_some() || value.is_empty() {
                return Err(format!(
                    "parameter {name} must be there once and not be empty"
                ));
            }
            *place = Some(decode(name, value)?);
        }
        Ok(query)
    }
}

fn parse_credentials(text: &str) -> Result<(Option<String>, Option<String>), String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let user = Some(decode("user", user)?).filter(|user| !user.is_empty());
    let password = Some(decode("password", password)?).filter(|password| !password.is_empty());
    if user.is_some() && password.is_none() {
        return Err(
            "it has a user but no password; a password alone is written redis://:password@host"
                .into(),
        );
    }
    Ok((user, password))
}

fn parse_host(text: &str, default_port: u16) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest
                .split_once(']')
                .ok_or("an IPv6 host has no closing ]")?;
            let address: std::net::Ipv6Addr = address
                .parse()
                .map_err(|_| format!("host [{}] is no IPv6 address", shown(address)))?;
            match port.strip_prefix(':') {
                Some(port) => (format!("[{address}]"), Some(port)),
                None if port.is_empty() => (format!("[{address}]"), None),
                None => return Err("after the ] of an IPv6 host only :port may stand".into()),
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    if name.is_empty() {
        return Err("the host is missing".into());
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.len() > 255 || !name.starts_with('[') && !name.bytes().all(plain) {
        return Err(format!(
            "host {} has characters that no host has",
            shown(&name)
        ));
    }
    let port = match port {
        None => default_port,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number != 0 && !port.starts_with('+'))
            .ok_or_else(|| format!("port {} is not 1 to 65535", shown(port)))?,
    };
    Ok(Host { name, port })
}

fn parse_database(path: &str) -> Result<Option<u8>, String> {
    let text = path.strip_prefix('/').unwrap_or(path);
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if !text.starts_with('+') => Ok(Some(number)),
        _ => Err(format!("database {} is not 0 to 255", shown(text))),
    }
}

/// Undoes percent-encoding. The error names the part, never its text.
fn decode(part: &str, text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = (rest.next().and_then(hex), rest.next().and_then(hex));
        let (Some(high), Some(low)) = digits else {
            return Err(format!(
                "the {part} has a % that two hex digits do not follow"
            ));
        };
        bytes.push(high << 4 | low);
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(format!("the {part} is not UTF-8 text")),
    }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        let kind = match self.place {
            Place::One(_) => "",
            Place::Cluster(_) => "-cluster",
            Place::Sentinel { .. } => "-sentinel",
            Place::Unix(_) => "+unix",
        };
        write!(f, "redis{tls}{kind}://")?;
        if let Some(user) = &self.user {
            write!(f, "{}", shown(user))?;
        }
        if self.password.is_some() {
            f.write_str(":***@")?;
        }
        match &self.place {
            Place::One(host) => write!(f, "{host}")?,
            Place::Unix(path) => write!(f, "{}", path.display())?,
            Place::Cluster(hosts) | Place::Sentinel { hosts, .. } => {
                for (index, host) in hosts.iter().enumerate() {
                    write!(f, "{}{host}", if index == 0 { "" } else { "," })?;
                }
            }
        }
        if let Some(database) = self.database {
            write!(f, "/{database}")?;
        }
        if let Place::Sentinel { service, .. } = &self.place {
            write!(f, "?service={}", shown(service))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}
