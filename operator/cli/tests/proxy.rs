//! `kubectl-approve` behind a proxy: HTTPS_PROXY and NO_PROXY, as kubectl reads them. The test ends at the proxy: no
//! request reaches an API server.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

const SERVER: &str = "127.0.0.2:1";

/// Runs `kubectl-approve list` with these environment variables.
fn list(variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{{"name": "c", "cluster": {{"server": "https://{SERVER}"}}}}],
            "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}], "users": [{{"name": "u", "user": {{"token": "t"}}}}]}}"#
    );
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-approve"));
    command.args(["list", "--kubeconfig"]).arg(&file);
    for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_api_server_is_reached_through_the_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let answered = std::thread::spawn(move || {
        let (mut connection, _) = proxy.accept().unwrap();
        let mut asked = String::new();
        BufReader::new(connection.try_clone().unwrap()).read_line(&mut asked).unwrap();
        connection.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
        asked
    });
    let output = list(&[("HTTPS_PROXY", &address)]);
    assert_eq!(answered.join().unwrap(), format!("CONNECT {SERVER} HTTP/1.1\r\n"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn no_proxy_goes_around_the_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let output = list(&[("HTTPS_PROXY", &address), ("NO_PROXY", "127.0.0.0/8")]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.starts_with(&format!("error: cannot reach https://{SERVER}")), "{message}");
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
