//! Writes kubeconfig files: one context for each person, under their short names.
//!
//! **Invariant:** no kubeconfig is read whose path was not given, and never the environment's.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};

use super::people::{CAST, Person};

/// Returns a kubeconfig with real tokens for the whole cast.
pub(crate) fn for_cast(server: &str, authority: &Path, tokens: &[(&Person, String)]) -> Kubeconfig {
    let cluster = Cluster {
        server: Some(server.to_owned()),
        certificate_authority: Some(authority.display().to_string()),
        ..Cluster::default()
    };
    let users = tokens.iter().map(|(person, token)| {
        let login = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
        (person.name, login)
    });
    assemble(cluster, users.collect())
}

/// Returns a kubeconfig for an existing cluster: the named context's own login is `admin`, and all others are
/// impersonated through it.
pub(crate) fn for_existing(file: &Path, context: &str) -> Result<Kubeconfig> {
    let config = Kubeconfig::read_from(file).with_context(|| format!("reading kubeconfig {}", file.display()))?;
    let Some(chosen) =
        config.contexts.iter().find(|named| named.name == context).and_then(|named| named.context.clone())
    else {
        let names: Vec<_> = config.contexts.iter().map(|named| named.name.as_str()).collect();
        bail!("{} has no context {context:?}; it has {}", file.display(), names.join(", "));
    };
    let cluster =
        config.clusters.into_iter().find(|named| named.name == chosen.cluster).and_then(|named| named.cluster);
    let cluster =
        cluster.with_context(|| format!("{}: context {context:?} names no cluster of this file", file.display()))?;
    let login = config
        .auth_infos
        .into_iter()
        .find(|named| Some(&named.name) == chosen.user.as_ref())
        .and_then(|named| named.auth_info);
    let login = login.with_context(|| format!("{}: context {context:?} names no user of this file", file.display()))?;
    let users = CAST.iter().map(|person| {
        let mut user = login.clone();
        if person.name != "admin" {
            user.impersonate = Some(person.user.to_owned());
            user.impersonate_groups = Some(person.groups.iter().map(|&group| group.to_owned()).collect());
        }
        (person.name, user)
    });
    Ok(assemble(cluster, users.collect()))
}

/// Writes a copy of the kubeconfig `cast_file` in which the current context is the person `name`, into a file beside
/// it. Returns the path of the copy.
pub(crate) fn write_login(cast_file: &Path, name: &str) -> Result<PathBuf> {
    let mut config = Kubeconfig::read_from(cast_file)?;
    config.current_context = Some(name.to_owned());
    let file = cast_file.with_file_name(format!("{name}.yaml"));
    write(&file, &config)?;
    Ok(file)
}

/// Returns a kubeconfig with one login whose token is read from the file `token`, so that the token can be renewed
/// while a program runs.
pub(crate) fn with_token_file(base: &Kubeconfig, name: &'static str, token: &Path) -> Result<Kubeconfig> {
    let cluster =
        base.clusters.first().and_then(|named| named.cluster.clone()).context("a kubeconfig without a cluster")?;
    let login = AuthInfo { token_file: Some(token.display().to_string()), ..AuthInfo::default() };
    let mut config = assemble(cluster, vec![(name, login)]);
    config.current_context = Some(name.to_owned());
    Ok(config)
}

/// Returns a kubeconfig with a server and a login, or an anonymous login without a token.
pub(crate) fn with_login(server: &str, authority: &Path, token: Option<&str>) -> Kubeconfig {
    let cluster = Cluster {
        server: Some(server.to_owned()),
        certificate_authority: Some(authority.display().to_string()),
        ..Cluster::default()
    };
    let login = AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
    Kubeconfig { current_context: Some("page".to_owned()), ..assemble(cluster, vec![("page", login)]) }
}

/// Writes a kubeconfig that only its owner can read, because it holds tokens.
pub(crate) fn write(path: &Path, config: &Kubeconfig) -> Result<()> {
    write_private(path, &serde_saphyr::to_string(config)?)
}

/// Replaces a file that only its owner can read, in one step: a reader finds the old text or the new text, and never a
/// part of either.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    fs::rename(&unfinished, path).with_context(|| format!("writing {}", path.display()))
}

/// Returns a kubeconfig with one cluster, and for each user one login and one context of the same name.
fn assemble(cluster: Cluster, users: Vec<(&str, AuthInfo)>) -> Kubeconfig {
    const CLUSTER: &str = "signoff";
    Kubeconfig {
        kind: Some("Config".to_owned()),
        api_version: Some("v1".to_owned()),
        clusters: vec![NamedCluster { name: CLUSTER.to_owned(), cluster: Some(cluster), ..NamedCluster::default() }],
        contexts: users
            .iter()
            .map(|(name, _)| NamedContext {
                name: (*name).to_owned(),
                context: Some(Context {
                    cluster: CLUSTER.to_owned(),
                    user: Some((*name).to_owned()),
                    ..Context::default()
                }),
                ..NamedContext::default()
            })
            .collect(),
        auth_infos: users
            .into_iter()
            .map(|(name, login)| NamedAuthInfo {
                name: name.to_owned(),
                auth_info: Some(login),
                ..NamedAuthInfo::default()
            })
            .collect(),
        current_context: Some("admin".to_owned()),
        ..Kubeconfig::default()
    }
}
