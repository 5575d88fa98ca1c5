//! The addresses of a control plane with a node: one bridge, on which pods and the API server connect without a proxy.
//! The node creates the addresses, in network namespaces of our own only.

use std::net::Ipv4Addr;

/// The addresses of one control plane. Networks with different numbers do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    number: u8,
}

impl Network {
    /// Returns the network with a number, which is a part of each of its addresses.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self { number }
    }

    /// Returns the name of the bridge, such as `pods3`.
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

    /// Returns the API server's address: the first address of the services. It is assigned to the bridge, and
    /// every pod finds it in its environment.
    #[must_use]
    pub fn api(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96, self.number, 1)
    }
}
