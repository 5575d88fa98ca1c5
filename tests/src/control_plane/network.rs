//! The addresses of a control plane with a node: one bridge, on which pods and the API server meet without any proxy.
//! It may only name them; making them is the node's business, and they are to exist nowhere but in namespaces of our own.

use std::net::Ipv4Addr;

/// The addresses of one such control plane. Two of different numbers do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    number: u8,
}

impl Network {
    /// The most there can be: pods have one octet after 10.88, and so have services after 10.96.
    pub const MOST: u8 = 8;

    /// The network of that number, counted from 0.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        (number < Self::MOST).then_some(Self { number })
    }

    /// The bridge's name.
    #[must_use]
    pub fn bridge(self) -> String {
        format!("pods{}", self.number)
    }

    /// The node's own address on the bridge, which is the gateway of its pods.
    #[must_use]
    pub fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88 + self.number, 0, 1)
    }

    /// The addresses of pods, [`Self::node`] among them.
    #[must_use]
    pub fn pods(self) -> String {
        format!("10.{}.0.0/24", 88 + self.number)
    }

    /// The addresses of services, [`Self::api`] among them.
    #[must_use]
    pub fn services(self) -> String {
        format!("10.{}.0.0/16", 96 + self.number)
    }

    /// The API server's address: the first of the services, as every pod is told, and really the bridge's.
    #[must_use]
    pub fn api(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.number, 0, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn two_networks_have_no_address_in_common() {
        let all: Vec<_> = (0..).map_while(Network::numbered).collect();
        let mut taken: Vec<_> = all.iter().flat_map(|network| [network.pods(), network.services()]).collect();
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 2 * usize::from(Network::MOST));
    }
}
