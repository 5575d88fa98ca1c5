//! The addresses of a control plane with a node: one bridge, on which pods and the API server connect without a proxy.
//! The node creates the addresses, in network namespaces of our own only.

use std::net::Ipv4Addr;

/// The addresses of one control plane. Networks with different numbers do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    number: u8,
}

impl Network {
    /// Returns the network of this number.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self { number }
    }

    /// Returns the bridge's name.
    #[must_use]
    pub fn bridge(self) -> String {
        format!("pods{}", self.number)
    }

    /// Returns the node's own address on the bridge, which is the gateway of its pods.
    #[must_use]
    pub fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.number, 1)
    }

    /// Returns the addresses of pods, [`Self::node`] among them.
    #[must_use]
    pub fn pods(self) -> String {
        format!("10.88.{}.0/24", self.number)
    }

    /// Returns the addresses of services, [`Self::api`] among them.
    #[must_use]
    pub fn services(self) -> String {
        format!("10.96.{}.0/24", self.number)
    }

    /// Returns the API server's address: the first of the services, as every pod is told, which is assigned to the
    /// bridge.
    #[must_use]
    pub fn api(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96, self.number, 1)
    }
}
