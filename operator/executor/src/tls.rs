//! The recognition of TLS failures among the causes of an error.

use std::error::Error;
use std::io;

/// Whether TLS is a cause of an error: a certificate that is not trusted, or a failed handshake.
#[must_use]
pub fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return true;
        }
        // The source of an I/O error is that of the inner error, so the inner error itself would be skipped.
        next = match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(within) => Some(within as &(dyn Error + 'static)),
            None => cause.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_error_is_found_within_nested_io_errors() {
        let refused = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert!(is_tls(&refused));
        assert!(is_tls(&io::Error::other(refused)));
        assert!(!is_tls(&io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused))));
    }
}
