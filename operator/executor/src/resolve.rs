//! Name resolution without the addresses that calls must not reach. The check is made on the very addresses to which
//! the connection is opened.
//!
//! **Invariant:** an answer has no address that `address` refuses. Nothing is kept between calls, so that a name that
//! changes its addresses between two look-ups gains nothing.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::address::{AddressSettings, Error};

tokio::task_local! {
    /// The port of the current call of this task. A resolver gets only a name, but exceptions are for ports. Without
    /// a port, exceptions for one port do not apply, so that the check fails closed.
    pub(crate) static PORT: Option<u16>;
}

/// The system's resolver.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A resolver that returns another resolver's answers without the refused addresses.
pub(crate) struct Checked {
    pub(crate) inner: Arc<dyn Resolve>,
    pub(crate) settings: Arc<AddressSettings>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let port = PORT.try_with(|port| *port).ok().flatten();
        let settings = Arc::clone(&self.settings);
        let host = name.as_str().to_owned();
        let resolving = self.inner.resolve(name);
        Box::pin(async move {
            let mut refused = None;
            let mut reachable: Vec<SocketAddr> = Vec::new();
            for address in resolving.await? {
                match settings.check_address(address.ip(), port, Some(&host)) {
                    Ok(()) => reachable.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(error) if reachable.is_empty() => Err(error.into()),
                _ => Ok(Box::new(reachable.into_iter()) as Addrs),
            }
        })
    }
}

/// Returns the refusal that caused a connection error, if there was one.
pub(crate) fn find_refusal(error: &reqwest::Error) -> Option<&Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(refused) = cause.downcast_ref::<Error>() {
            return Some(refused);
        }
        source = cause.source();
    }
    None
}
