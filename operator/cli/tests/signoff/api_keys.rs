//! Local runs whose requests have headers from Secrets, against a server that returns what it is sent.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    thread::JoinHandle,
};

use super::{Ended, Home};

const VALUE: &str = "crm-hunter2-hunter2";

/// Starts a server that answers one request with this status, and with the request as the body. Returns the address,
/// and the thread that returns the request.
fn start_echo_server(status: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the request ends early");
            request.extend_from_slice(&bytes[..length]);
        }
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", request.len());
        stream.write_all(&[head.as_bytes(), &request].concat()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, served)
}

/// Writes a Workflow that asks a server with the key of the Secret `crm`.
fn write_workflow(home: &Home, address: SocketAddr) {
    let text = format!(
        "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: look}}\nspec:\n  \
         inputs: [{{name: path, value: '@evil.example'}}]\n  \
         secrets: [{{name: crm, secret: crm, key: token}}]\n  steps:\n  - name: look\n    http:\n      \
         url: \"http://{address}/{{{{ inputs.path }}}}\"\n      \
         secretHeaders: [{{name: Authorization, prefix: 'Bearer ', from: crm}}]\n"
    );
    home.file("look.yaml", &text);
}

/// Runs the Workflow with a value of the key and the hosts to which the key may be sent.
fn run_with_key(home: &Home, value: &str, hosts: &str) -> Ended {
    let mut command = home.signoff(&["run", "look.yaml"]);
    command.env("SIGNOFF_SECRET_CRM_TOKEN", value).env("SIGNOFF_SECRET_CRM_ALLOWED_HOSTS", hosts);
    Ended::of(&command.output().unwrap())
}

/// Returns the content of every file below a folder.
fn read_all(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        text += &if entry.is_dir() { read_all(&entry) } else { fs::read_to_string(entry).unwrap() };
    }
    text
}

#[test]
fn a_key_of_a_request_is_sent_and_neither_printed_nor_written() {
    for (status, code) in [("200 OK", 0), ("400 Bad Request", 10)] {
        let home = Home::new();
        let (address, served) = start_echo_server(status);
        write_workflow(&home, address);
        let ended = run_with_key(&home, VALUE, &format!("http://{address}")).with(code);
        let request = served.join().unwrap();
        assert!(request.starts_with("GET /%40evil.example HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("authorization: Bearer {VALUE}\r\n")), "{request}");
        let all = ended.out + &ended.err + &read_all(home.path());
        assert!(all.contains("Bearer [redacted]") && !all.contains(VALUE), "{status}: {all}");
    }
}

#[test]
fn nothing_is_sent_without_a_list_that_allows_it_and_the_remedy_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listed = format!("http://{address}");
    for (value, hosts, words) in [
        (VALUE, "127.0.0.1", format!("if it belongs there, add {listed}")),
        (VALUE, "", format!("export SIGNOFF_SECRET_CRM_ALLOWED_HOSTS='{listed}'")),
        ("hunter2-hunter2", listed.as_str(), "the value of crm of spec.secrets has fewer than 16 bytes".to_owned()),
    ] {
        let home = Home::new();
        write_workflow(&home, address);
        let ended = run_with_key(&home, value, hosts).with(10);
        assert!(ended.err.contains(&words), "{ended:?}");
        assert!(!(ended.out + &ended.err + &read_all(home.path())).contains("hunter2"), "{hosts}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nothing was called");
}
