//! The addresses of a control plane with a node: one bridge, on which pods and the API server meet without any proxy.
//! It may only name them; making them is the node's business, and they are to exist nowhere but in namespaces of our
//! own.

use std::net::Ipv4Addr;

/// The addresses of one such control plane. Two of different numbers do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    number: u8,
}

impl Network {
    /// The network of that number.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self { number }
    }

    /// The bridge's name.
    #[must_use]
    pub fn bridge(self) -> String {
        format!("pods{}", self.number)
    }

    /// The node's own address on the bridge, which is the gateway of its pods.
    #[must_use]
    pub fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.number, 1)
    }

    /// The addresses of pods, [`Self::node`] among them.
    #[must_use]
    pub fn pods(self) -> String {
        format!("10.88.{}.0/24", self.number)
    }

    /// The addresses of services, [`Self::api`] among them.
    #[must_use]
    pub fn services(self) -> String {
        format!("10.96.{}.0/24", self.number)
    }

    /// The API server's address: the first of the services, as every pod is told, and really the bridge's.
    #[must_use]
    pub fn api(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96, self.number, 1)
    }
}
