//! A server on this machine that accepts requests and answers only when the test tells it to.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

pub struct Server(TcpListener);

impl Server {
    pub fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// Returns a Workflow that posts to the server.
    pub fn workflow(&self) -> String {
        let address = self.0.local_addr().unwrap();
        format!(
            "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: post}}\nspec:\n  \
             steps:\n  - {{name: send, http: {{method: POST, url: 'http://{address}/', body: money}}}}\n"
        )
    }

    /// Waits for the next request, with its head and body.
    pub fn request(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"money") {
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the request ends early");
            seen.extend_from_slice(&bytes[..length]);
        }
        stream
    }

    pub fn answer(mut stream: TcpStream) {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsent").unwrap();
    }

    /// Whether a connection waits that was not accepted yet.
    pub fn is_waited_for(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.accept().is_ok()
    }
}
