//! The current addresses around the operator: those of nodes, of the API server and of the operator's own neighbors.
//! Calls must not reach them, although they look ordinary.
//!
//! The program that watches the cluster reports them. An address is refused while an announced report is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use tokio::sync::watch;

use super::cidr::{Cidr, v4, v6};

/// The networks in which clusters have nodes, pods and services without public addresses.
const PRIVATE: [Cidr; 4] =
    [v4([10, 0, 0, 0], 8), v4([172, 16, 0, 0], 12), v4([192, 168, 0, 0], 16), v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7)];

/// The addresses around the operator that calls must not reach: nodes, Pods, Services, the API server. Clones share one
/// set, which is empty at first.
#[derive(Clone, Debug)]
pub struct ProtectedSet {
    known: Arc<watch::Sender<BTreeMap<&'static str, Known>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// The report is announced and has not arrived.
    Awaited,
    Here(BTreeSet<IpAddr>),
    /// The reason why the addresses cannot be read.
    Hidden(String),
}

/// The result of looking an address up in a [`ProtectedSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The address is not protected.
    Nothing,
    /// The address is protected. The text is the `what` of its report, as in "a node of the cluster".
    Here(&'static str),
    /// The address may be protected, because a report is missing: the `what` of the report, and the reason.
    Perhaps(&'static str, String),
}

impl Default for ProtectedSet {
    fn default() -> Self {
        Self { known: Arc::new(watch::Sender::new(BTreeMap::new())) }
    }
}

impl ProtectedSet {
    /// Announces a report of the addresses of `what`. Until the report arrives, the addresses are unknown. `what`
    /// completes a sentence about an address, as in "it is a node of the cluster".
    pub fn announce(&self, what: &'static str) {
        self.set(what, Known::Awaited);
    }

    /// Replaces the addresses of `what`.
    pub fn set_addresses(&self, what: &'static str, addresses: BTreeSet<IpAddr>) {
        self.set(what, Known::Here(addresses));
    }

    /// Records that the addresses of `what` cannot be read. Earlier addresses stay. Returns whether the state changed.
    pub fn set_unreadable(&self, what: &'static str, why: &str) -> bool {
        let is_reported = matches!(self.known.borrow().get(what), Some(Known::Here(_)));
        !is_reported && self.set(what, Known::Hidden(why.to_owned()))
    }

    /// Waits until each announced report has arrived or has failed.
    pub async fn settled(&self) {
        let awaits = |known: &BTreeMap<_, Known>| known.values().any(|known| *known == Known::Awaited);
        // `self` holds the sender, so it is not dropped during the wait.
        let _ = self.known.subscribe().wait_for(|known| !awaits(known)).await;
    }

    fn set(&self, what: &'static str, now: Known) -> bool {
        self.known.send_if_modified(|known| known.insert(what, now.clone()).as_ref() != Some(&now))
    }

    /// Looks an address up. A public address is never `Perhaps`: a cluster whose nodes have public addresses
    /// relies on the reports.
    pub(super) fn find(&self, address: IpAddr) -> Found {
        let known = self.known.borrow();
        if let Some((what, _)) =
            known.iter().find(|(_, known)| matches!(known, Known::Here(all) if all.contains(&address)))
        {
            return Found::Here(what);
        }
        if !PRIVATE.iter().any(|network| network.contains(address)) {
            return Found::Nothing;
        }
        let unknown = known.iter().find_map(|(what, known)| match known {
            Known::Here(_) => None,
            Known::Awaited => Some(Found::Perhaps(what, "the API server has not answered yet".to_owned())),
            Known::Hidden(why) => Some(Found::Perhaps(what, why.clone())),
        });
        unknown.unwrap_or(Found::Nothing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_reported_address_is_found_until_the_next_report() {
        let protected = ProtectedSet::default();
        protected.clone().set_addresses("a node", [ip("10.0.0.1"), ip("2a00::1")].into());
        protected.set_addresses("a service", [ip("10.96.0.1")].into());
        assert_eq!(protected.find(ip("10.0.0.1")), Found::Here("a node"));
        assert_eq!(protected.find(ip("2a00::1")), Found::Here("a node"));
        assert_eq!(protected.find(ip("10.96.0.1")), Found::Here("a service"));
        assert_eq!(protected.find(ip("10.0.0.2")), Found::Nothing);
        protected.set_addresses("a node", [ip("10.0.0.2")].into());
        let found = ["10.0.0.1", "10.0.0.2"].map(|address| protected.find(ip(address)));
        assert_eq!(found, [Found::Nothing, Found::Here("a node")]);
    }

    #[test]
    fn a_private_address_may_be_protected_while_a_report_is_missing() {
        let protected = ProtectedSet::default();
        assert_eq!(protected.find(ip("10.0.0.1")), Found::Nothing, "nothing was announced");
        protected.announce("a node");
        for private in ["10.0.0.1", "172.31.0.1", "192.168.7.7", "fd12::1"] {
            assert!(matches!(protected.find(ip(private)), Found::Perhaps("a node", _)), "{private}");
        }
        assert_eq!(protected.find(ip("8.8.8.8")), Found::Nothing);
        protected.set_unreadable("a node", "forbidden");
        assert_eq!(protected.find(ip("10.0.0.1")), Found::Perhaps("a node", "forbidden".to_owned()));
        protected.set_addresses("a node", BTreeSet::new());
        assert_eq!(protected.find(ip("10.0.0.1")), Found::Nothing);
        protected.set_unreadable("a node", "forbidden");
        assert_eq!(protected.find(ip("10.0.0.1")), Found::Nothing, "what was told stays");
    }

    #[tokio::test]
    async fn settled_waits_until_each_announced_report_arrived_or_failed() {
        let protected = ProtectedSet::default();
        protected.settled().await;
        protected.announce("a node");
        protected.announce("a service");
        let settled = tokio::spawn({
            let protected = protected.clone();
            async move { protected.settled().await }
        });
        protected.set_addresses("a node", BTreeSet::new());
        tokio::task::yield_now().await;
        assert!(!settled.is_finished());
        protected.set_unreadable("a service", "forbidden");
        settled.await.unwrap();
    }
}
