//! Addresses that are read, refused, and never shown with their password.

use proptest::prelude::*;

use super::url::RedisUrl;

fn read(url: &str) -> RedisUrl {
    url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &str) -> String {
    match url.parse::<RedisUrl>() {
        Ok(url) => panic!("{url} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_usual_addresses_are_read() {
    assert_eq!(
        read("redis://localhost").to_string(),
        "redis://localhost:6379"
    );
    assert_eq!(
        read("redis://[::1]:7000/3").to_string(),
        "redis://[::1]:7000/3"
    );
    assert_eq!(read("valkey://a.b:1/0").to_string(), "redis://a.b:1");
    let url = read("redis://bob:p%40ss%2F%25@h:1/15");
    assert_eq!(
        (url.user.as_deref(), url.password.as_deref()),
        (Some("bob"), Some("p@ss/%"))
    );
    assert_eq!(read("redis://:pw@h").password.as_deref(), Some("pw"));
    assert_eq!(
        read("redis-cluster://a:1?node=b:2&node=[::2]:3").to_string(),
        "redis-cluster://a:1,b:2,[::2]:3"
    );
    let sentinel = "redis-sentinel://u:p@a/2?service=main&node=b:2&sentinelPassword=q";
    assert_eq!(
        read(sentinel).to_string(),
        "redis-sentinel://u:***@a:26379,b:2/2?service=main"
    );
    assert_eq!(
        read("unix:///run/r.sock?db=4").to_string(),
        "redis+unix:///run/r.sock/4"
    );
    assert_eq!(
        read("redis+unix://u:p@x/r.sock").password.as_deref(),
        Some("p")
    );
}

#[test]
fn what_cannot_work_is_refused_by_name() {
    for (url, says) in [
        ("localhost:6379", "no scheme"),
        ("http://h", "scheme"),
        ("redis://", "host is missing"),
        ("redis://h:0", "port 0"),
        ("redis://h:65536", "port 65536"),
        ("redis://h:+1", "port +1"),
        ("redis://h/256", "database 256"),
        ("redis://h/x", "database x"),
        ("redis://h?protocol=3", "parameter protocol"),
        ("redis://h?node=b:1", "parameter node"),
        ("redis-cluster://h/1", "no database"),
        ("redis-sentinel://h", "?service=NAME"),
        ("redis-sentinel://h?service=a&sentinelServiceName=b", "once"),
        (
            "redis-sentinel://h?service=a&sentinelUsername=b",
            "sentinelPassword",
        ),
        ("redis://u@h", "no password"),
        ("redis://u:%zz@h", "hex digits"),
        ("redis://u:%ff@h", "UTF-8"),
        ("redis://a b", "characters"),
        ("redis://[::1", "closing"),
        ("redis://[x]", "IPv6"),
        ("unix://r.sock", "absolute"),
        ("unix:///", "missing"),
        ("redis://h#x", "percent-encoded"),
    ] {
        let text = refused(url);
        assert!(text.contains(says), "{url}: {text}");
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_without_the_feature_says_which_feature() {
    assert!(refused("rediss://h").contains("feature `tls`"));
}

#[test]
fn no_error_and_no_text_shows_the_password() {
    for url in [
        "redis://u:hun/ter2@h",
        "redis://u:hun?ter2@h",
        "redis://u:hun#ter2@h",
        "redis://u:hunter2@h:x",
        "redis://u:hunter2@h/x",
        "redis://u:hunter2%@h",
        "redis://u:hunter2@",
        "redis://u:hunter2@h?hello=1",
        "rediss-cluster://u:hunter2@h/7",
        "redis-sentinel://h?sentinelPassword=hunter2",
        "unix://u:hunter2@",
    ] {
        let text = refused(url);
        assert!(
            !text.contains("hun") && !text.contains("ter2"),
            "{url}: {text}"
        );
    }
    let url = read("redis-sentinel://u:hunter2@h?service=s&sentinelPassword=hunter3");
    assert!(!format!("{url} {url:?}").contains("hunter"));
    assert_eq!(url.secrets(), ["hunter2", "hunter3"]);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", tail in ".*") {
        let _ = text.parse::<RedisUrl>();
        let _ = format!("redis://{text}").parse::<RedisUrl>();
        let _ = format!("redis-sentinel://{text}@{tail}?service={tail}").parse::<RedisUrl>();
        let _ = format!("unix://{text}/{tail}").parse::<RedisUrl>();
    }

    #[test]
    fn a_password_of_any_text_is_read_and_never_shown(password in "[^\u{0}]{8,20}") {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let url = read(&format!("redis://bob:{encoded}@h"));
        prop_assert_eq!(url.password.as_deref(), Some(password.as_str()));
        prop_assert_eq!(url.to_string(), "redis://bob:***@h:6379");
    }
}
