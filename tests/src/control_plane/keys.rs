//! The key pair that signs a control plane's service-account tokens. Every control plane generates its own, so that no
//! private key is stored in a repository.

use std::fs;
use std::path::Path;

use anyhow::Result;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;

/// Writes a new key pair for service-account tokens as PEM files.
pub(crate) fn write(private: &Path, public: &Path) -> Result<()> {
    let unable = |_| anyhow::anyhow!("cannot generate a signing key");
    let document =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).map_err(unable)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref())?;
    fs::write(private, pem("PRIVATE KEY", document.as_ref()))?;
    fs::write(public, pem("PUBLIC KEY", pair.public_key().as_der().map_err(unable)?.as_ref()))?;
    Ok(())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
