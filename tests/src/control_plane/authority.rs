//! A certificate authority for each TLS server on loopback, and the server's certificate. Both are created for each
//! run, so that no private key is stored in a repository and no machine trusts one for long.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::kubeconfig::write_private;

/// The files of a certificate and its authority.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    /// The authority's certificate, which clients trust.
    pub(super) authority: PathBuf,
    /// The server's certificate, for 127.0.0.1 and localhost.
    pub(super) certificate: PathBuf,
    /// The server's private key, which only the owner of the files can read.
    pub(super) key: PathBuf,
}

impl Certificates {
    /// Creates the files in a folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "signoff tests");
        let issuer_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&issuer_key)?;

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "127.0.0.1");
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &Issuer::new(authority, issuer_key))?;

        let files = Self {
            authority: folder.join("authority.crt"),
            certificate: folder.join("server.crt"),
            key: folder.join("server.key"),
        };
        write_private(&files.authority, &authority_certificate.pem())?;
        write_private(&files.certificate, &certificate.pem())?;
        write_private(&files.key, &key.serialize_pem())?;
        Ok(files)
    }
}
