//! The limits of requests without a session, by address. They are checked before the API server or the identity
//! provider is asked.
//!
//! **Invariant:** the number of remembered addresses and tokens is bounded.

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU32, NonZeroUsize},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use governor::{
    Quota,
    clock::{Clock, DefaultClock},
    state::{InMemoryState, NotKeyed},
};
use http::HeaderMap;
use lru::LruCache;
use tokio::time::Instant;

use super::TokenId;

/// The most sign-ins of one address at once. A whole office can have one address.
const BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(119);
/// The number of sign-ins that an address regains in a minute.
const PER_MINUTE: NonZeroU32 = NonZeroU32::MIN.saturating_add(59);
/// The most remembered addresses. A further address replaces the least recently used one.
const ADDRESSES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);
/// The most refused tokens that are remembered.
const TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);
/// The time for which a token that the API server refused is not sent to it again.
const REFUSED_FOR: Duration = Duration::from_secs(15);

type Limiter = governor::RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// The limits, with the remembered addresses and refused tokens.
pub struct Limits {
    proxies: usize,
    addresses: Mutex<LruCache<Network, Limiter>>,
    refused: Mutex<LruCache<TokenId, Instant>>,
}

/// An address, or for IPv6 the network that one customer usually has (/64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// An address.
    V4([u8; 4]),
    /// The first four groups of an IPv6 address.
    V6([u16; 4]),
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl Limits {
    /// Returns limits for a page behind a number of proxies.
    #[must_use]
    pub fn new(proxies: u8) -> Self {
        Self {
            proxies: proxies.into(),
            addresses: Mutex::new(LruCache::new(ADDRESSES)),
            refused: Mutex::new(LruCache::new(TOKENS)),
        }
    }

    /// Counts a request of a network. If the request is not allowed, the error is the time until one is.
    pub fn count(&self, network: Network) -> Result<(), Duration> {
        let mut limiters = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let limiter =
            limiters.get_or_insert(network, || Limiter::direct(Quota::per_minute(PER_MINUTE).allow_burst(BURST)));
        limiter.check().map_err(|until| until.wait_time_from(DefaultClock::default().now()))
    }

    /// Whether the API server refused a token less than `REFUSED_FOR` ago.
    #[must_use]
    pub fn is_refused(&self, token: &TokenId) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(token).is_some_and(|at| at.elapsed() < REFUSED_FOR)
    }

    /// Remembers that the API server refused a token.
    pub fn refuse(&self, token: TokenId) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).put(token, Instant::now());
    }

    /// Returns the address of a client: the peer, or the address that the first of the configured proxies appended. An
    /// address that the client wrote itself is further to the left, and does not count.
    pub fn address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let Some(position) = self.proxies.checked_sub(1) else { return peer };
        let lines: Vec<&str> =
            headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
        let named = lines.iter().flat_map(|line| line.split(',')).map(str::trim).rev().nth(position);
        named.and_then(parse).unwrap_or(peer)
    }
}

/// Parses an address, with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;
    use secrecy::SecretString;

    use super::*;

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn address_with_too_many_sign_ins_waits_and_others_do_not() {
        let limits = Limits::new(0);
        for _ in 0..BURST.get() {
            limits.count(network("192.0.2.1")).unwrap();
        }
        let wait = limits.count(network("192.0.2.1")).unwrap_err();
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        limits.count(network("192.0.2.2")).unwrap();
    }

    #[test]
    fn ipv6_addresses_of_a_network_count_as_one_and_mapped_ones_as_ipv4() {
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }

    #[test]
    fn address_is_the_one_that_a_configured_proxy_appended() {
        let peer: IpAddr = "10.0.0.9".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 192.0.2.1"));
        headers.append("x-forwarded-for", HeaderValue::from_static("[2001:db8::1]:443"));
        let address = |proxies| Limits::new(proxies).address(peer, &headers).to_string();
        assert_eq!(address(0), "10.0.0.9");
        assert_eq!(address(1), "2001:db8::1");
        assert_eq!(address(2), "192.0.2.1");
        assert_eq!(address(4), "10.0.0.9", "fewer than expected");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_remembered_for_a_moment() {
        let limits = Limits::new(0);
        let token = TokenId::of(&SecretString::from("t".to_owned()));
        assert!(!limits.is_refused(&token));
        limits.refuse(token.clone());
        assert!(limits.is_refused(&token));
        tokio::time::advance(REFUSED_FOR).await;
        assert!(!limits.is_refused(&token));
    }

    #[test]
    fn a_flood_of_addresses_and_tokens_is_bounded() {
        let limits = Limits::new(0);
        for number in 0..20_000_u32 {
            limits.count(Network::V4(number.to_be_bytes())).unwrap();
            limits.refuse(TokenId::of(&SecretString::from(number.to_string())));
        }
        assert_eq!(limits.addresses.lock().unwrap().len(), ADDRESSES.get());
        assert_eq!(limits.refused.lock().unwrap().len(), TOKENS.get());
    }
}
