//! Tests of the filter, with documents cut at any positions, and of the layer around a client.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns the output of one filter for all bytes, cut at the positions `places`.
fn filter_in_pieces(text: &[u8], places: &[usize]) -> Vec<u8> {
    let mut places: Vec<usize> = places.iter().map(|place| place % (text.len() + 1)).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    let mut filter = DepthFilter::default();
    places.windows(2).flat_map(|ends| filter.pass(Bytes::copy_from_slice(&text[ends[0]..ends[1]]))).collect()
}

fn filter_whole(text: &[u8]) -> Vec<u8> {
    filter_in_pieces(text, &[])
}

/// Returns the expected output for a whole document.
fn prune(value: &Value, depth: u32) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => Value::Null,
        Value::Array(items) => items.iter().map(|item| prune(item, depth + 1)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), prune(value, depth + 1)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Returns any document: strings of all kinds, also as names, nested to depths around the limit.
fn documents() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[\\[\\]{}\"\\\\]{0,8}", "[a-zäß界\u{1f600}\\\\\"]{0,6}"].boxed();
    let leaf = prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), text.clone().prop_map(Value::from)];
    let name = text.clone();
    let shrub = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    });
    let floor = prop_oneof![Just(false), Just(true)];
    let tower = (shrub, prop::collection::vec((floor, text), 80..240)).prop_map(|(top, floors)| {
        floors.into_iter().fold(top, |inner, (list, text)| {
            if list { json!([text, inner, text]) } else { json!({"a": [], text.clone(): inner, "z": text}) }
        })
    });
    prop::collection::vec(tower, 1..3).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_filter_prunes_a_document_below_the_largest_depth(value in documents(), pretty: bool) {
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(&filter_whole(&text)).unwrap(), prune(&value, 0));
    }

    #[test]
    fn pieces_of_a_document_do_not_matter(value in documents(), places: Vec<usize>) {
        let text = serde_json::to_vec(&value).unwrap();
        prop_assert_eq!(filter_in_pieces(&text, &places), filter_whole(&text));
    }

    #[test]
    fn pieces_of_bytes_do_not_matter(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"[]{}\"\\".to_vec())], 0..2000), places: Vec<usize>) {
        prop_assert_eq!(filter_in_pieces(&bytes, &places), filter_whole(&bytes));
    }
}

fn tower(height: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(height), "}".repeat(height))
}

#[test]
fn shallow_json_is_unchanged() {
    for text in [r#" {"a": ["]}\"{[", {"b": "\\"}], "c": null} "#.to_owned(), tower(100), "[[]]\n{}\n".repeat(200)] {
        assert_eq!(filter_whole(text.as_bytes()), text.as_bytes());
    }
}

#[test]
fn the_lines_of_a_watch_do_not_hide_each_other() {
    let lines = format!("{}\n{{\"n\":1}}\n{}\n{{\"n\":2}}\n", tower(101), tower(10_000));
    let passed = filter_whole(lines.as_bytes());
    let hidden = tower(100).replace('1', "null");
    assert_eq!(String::from_utf8(passed).unwrap(), format!("{hidden}\n{{\"n\":1}}\n{hidden}\n{{\"n\":2}}\n"));
}

/// Returns a client of a server that always sends this answer, in pieces of seven bytes.
fn client_of(kind: &'static str, text: &str) -> Client {
    let text = Bytes::copy_from_slice(text.as_bytes());
    let service = tower::service_fn(move |_: Request<RequestBody>| {
        let pieces: Vec<_> =
            text.chunks(7).map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        let body = http_body_util::StreamBody::new(futures::stream::iter(pieces));
        let answer = Response::builder().header(CONTENT_TYPE, kind).header(CONTENT_LENGTH, text.len());
        std::future::ready(answer.body(body).map_err(BoxError::from))
    });
    connect_service(service, "default")
}

async fn get_configmaps(client: &Client) -> Result<Value, kube::Error> {
    client.request(Request::get("/api/v1/configmaps").body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn a_list_with_one_object_that_nests_too_deep_is_read() {
    let list = format!(r#"{{"items": [{{"name": "a", "managedFields": {}}}, {{"name": "b"}}]}}"#, tower(5000));
    assert!(serde_json::from_str::<Value>(&list).is_err(), "serde_json reads it by itself: this crate can go");
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/apply+json"] {
        let read = get_configmaps(&client_of(kind, &list)).await.unwrap();
        assert_eq!((&read["items"][0]["name"], &read["items"][1]["name"]), (&json!("a"), &json!("b")));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_unchanged() {
    let log = format!("a log with an unfinished \" and {} in it", "[".repeat(300));
    let request = || Request::get("/api/v1/namespaces/a/pods/b/log").body(Vec::new()).unwrap();
    assert_eq!(client_of("text/plain", &log).request_text(request()).await.unwrap(), log);
}
