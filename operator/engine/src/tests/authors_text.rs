//! Tests of the origin of a text: a scripted answer is text of the author, and an answer of a model, a server or a
//! person is foreign text.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use signoff_api::Verdict;

use super::test_run::{TestRun, decided, gate};
use crate::evaluation::{Observer, Part, observe};

/// Records for the path of each evaluated part whether the part read foreign text.
#[derive(Default)]
struct Parts {
    current: Mutex<Option<String>>,
    is_foreign: Mutex<BTreeMap<String, bool>>,
}

impl Observer for Parts {
    fn enter(&self, part: Part) {
        let Part::Step { path, .. } = part else { return };
        self.is_foreign.lock().unwrap().entry(path.clone()).or_default();
        *self.current.lock().unwrap() = Some(path);
    }

    fn record_foreign_text(&self) {
        if let Some(path) = &*self.current.lock().unwrap() {
            self.is_foreign.lock().unwrap().insert(path.clone(), true);
        }
    }

    fn leave(&self) {
        *self.current.lock().unwrap() = None;
    }
}

/// Runs `evaluate`, and returns the paths of the parts that read foreign text.
fn parts_with_foreign_text(evaluate: impl FnOnce()) -> Vec<String> {
    let parts = Arc::new(Parts::default());
    observe(parts.clone(), evaluate);
    let parts = parts.is_foreign.lock().unwrap();
    assert!(!parts.is_empty(), "nothing was evaluated");
    parts.iter().filter(|(_, is_foreign)| **is_foreign).map(|(path, _)| path.clone()).collect()
}

fn spec(provider: &str, steps: Value) -> Value {
    json!({
        "providers": [
            {"name": "script", "scripted": {"replies": [{"text": "{}"}]}},
            {"name": "model", "openai": {"baseURL": "https://models.example/v1"}},
        ],
        "agents": [{"name": "writer", "model": "small", "provider": provider}],
        "steps": steps,
    })
}

/// Returns steps: the answer of the first one is validated, and the last one reads it.
fn steps_with_validated_answer() -> Value {
    json!([
        {"name": "draft", "agent": {"name": "writer", "input": "write"}, "outputSchema": {"type": "object"}},
        {"name": "use", "set": {"value": "{{ steps.draft.response }}"}},
    ])
}

#[test]
fn a_scripted_answer_is_text_of_the_author_unlike_a_models() {
    for (provider, expected) in [("script", &[][..]), ("model", &[".outputs", "draft", "use"])] {
        let mut run = TestRun::of(spec(provider, steps_with_validated_answer()));
        let paths = parts_with_foreign_text(|| {
            run.reply("draft", 1, "{}");
        });
        assert_eq!(paths, expected, "{provider}");
    }
}

#[test]
fn a_scripted_answer_to_a_repeated_request_is_text_of_the_author() {
    for (provider, expected) in [("script", &[][..]), ("model", &[".outputs", "draft", "use"])] {
        let mut run = TestRun::of(spec(provider, steps_with_validated_answer()));
        run.reply("draft", 1, "no JSON");
        assert_eq!(run.calls(), ["draft/.ask-2@1"]);
        let paths = parts_with_foreign_text(|| {
            run.reply("draft/.ask-2", 1, "{}");
        });
        assert_eq!(paths, expected, "{provider}");
    }
}

#[test]
fn answers_of_servers_and_people_are_foreign_text() {
    let steps = json!([
        {"name": "draft", "agent": {"name": "writer", "input": "write"}},
        {"name": "look", "http": {"method": "GET", "url": "http://x/"}},
        {"name": "use", "set": {"value": "{{ steps.draft.response }}"}},
    ]);
    let mut run = TestRun::of(spec("script", steps));
    run.reply("draft", 1, "hello");
    assert_eq!(
        parts_with_foreign_text(|| {
            run.reply("look", 1, "x");
        }),
        [".outputs", "use"]
    );
    let steps = json!([
        {"name": "draft", "agent": {"name": "writer", "input": "write"}},
        {"name": "review", "hitl": gate(json!({}))},
        {"name": "use", "set": {"value": "{{ steps.draft.response }}"}},
    ]);
    let mut run = TestRun::of(spec("script", steps));
    run.reply("draft", 1, "hello");
    assert_eq!(
        parts_with_foreign_text(|| {
            run.decide("review", decided(Verdict::Approve));
        }),
        [".outputs", "use"]
    );
}
