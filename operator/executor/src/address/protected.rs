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
    /// The reason why they cannot be read.
    Hidden(String),
}

/// The kind of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The address is not protected.
    Nothing,
    /// The address is one of these.
    Here(&'static str),
    /// The address may be one of these, because they cannot be read for this reason.
    Perhaps(&'static str, String),
}

impl Default for ProtectedSet {
    fn default() -> Self {
        Self { known: Arc::new(watch::Sender::new(BTreeMap::new())) }
    }
}

impl ProtectedSet {
    /// Announces a report of the addresses of `what`. Until it arrives they are unknown. `what` completes a sentence
    /// about an address, as in "it is a node of the cluster".
    pub fn announce(&self, what: &'static str) {
        self.set(what, Known::Awaited);
    }

    /// Replaces the addresses of `what`.
    pub fn tell(&self, what: &'static str, addresses: BTreeSet<IpAddr>) {
        self.set(what, Known::Here(addresses));
    }

    /// Records that the addresses of `what` cannot be read. Earlier addresses stay. Returns whether the state changed.
    pub fn hide(&self, what: &'static str, why: &str) -> bool {
        let told = matches!(self.known.borrow().get(what), Some(Known::Here(_)));
        !told && self.set(what, Known::Hidden(why.to_owned()))
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

    /// Returns the kind of an address. A public address is never `Perhaps`: a cluster whose nodes have public addresses
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
    fn what_is_told_is_found_until_something_else_is_told() {
        let around = ProtectedSet::default();
        around.clone().tell("a node", [ip("10.0.0.1"), ip("2a00::1")].into());
        around.tell("a service", [ip("10.96.0.1")].into());
        assert_eq!(around.find(ip("10.0.0.1")), Found::Here("a node"));
        assert_eq!(around.find(ip("2a00::1")), Found::Here("a node"));
        assert_eq!(around.find(ip("10.96.0.1")), Found::Here("a service"));
        assert_eq!(around.find(ip("10.0.0.2")), Found::Nothing);
        around.tell("a node", [ip("10.0.0.2")].into());
        assert_eq!((around.find(ip("10.0.0.1")), around.find(ip("10.0.0.2"))), (Found::Nothing, Found::Here("a node")));
    }

    #[test]
    fn while_something_is_unknown_every_private_address_may_be_it() {
        let around = ProtectedSet::default();
        assert_eq!(around.find(ip("10.0.0.1")), Found::Nothing, "nothing was announced");
        around.announce("a node");
        for private in ["10.0.0.1", "172.31.0.1", "192.168.7.7", "fd12::1"] {
            assert!(matches!(around.find(ip(private)), Found::Perhaps("a node", _)), "{private}");
        }
        assert_eq!(around.find(ip("8.8.8.8")), Found::Nothing);
        around.hide("a node", "forbidden");
        assert_eq!(around.find(ip("10.0.0.1")), Found::Perhaps("a node", "forbidden".to_owned()));
        around.tell("a node", BTreeSet::new());
        assert_eq!(around.find(ip("10.0.0.1")), Found::Nothing);
        around.hide("a node", "forbidden");
        assert_eq!(around.find(ip("10.0.0.1")), Found::Nothing, "what was told stays");
    }

    #[tokio::test]
    async fn it_has_settled_once_everything_announced_is_told_or_hidden() {
        let around = ProtectedSet::default();
        around.settled().await;
        around.announce("a node");
        around.announce("a service");
        let settled = tokio::spawn({
            let around = around.clone();
            async move { around.settled().await }
        });
        around.tell("a node", BTreeSet::new());
        tokio::task::yield_now().await;
        assert!(!settled.is_finished());
        around.hide("a service", "forbidden");
        settled.await.unwrap();
    }
}
