//! The page about an inspection, for administrators: every object, what differs, and the remedy.
//!
//! It must not leave anything out, also not what is well.

use crate::{Inspection, State, policies::Identity};

impl Inspection {
    /// A page for a terminal: what is in force, what differs, what to do.
    #[must_use]
    pub fn report(&self) -> String {
        let mut page = String::new();
        if let Some(identity) = &self.identity {
            page.push_str(&format!("Operator that the rules trust: {}\n\n", Identity::user_name(identity)));
        }
        let names: Vec<_> = self.objects.iter().map(|object| format!("{}/{}", object.kind, object.name)).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (name, object) in names.iter().zip(&self.objects) {
            let state = match &object.state {
                State::AsShipped if object.kind == "APIService" => "served by this API server".to_owned(),
                State::AsShipped => "as shipped".to_owned(),
                State::Differs(place) => format!("DIFFERS at {place}"),
                State::Missing => "MISSING".to_owned(),
                State::Elsewhere => "SERVED BY ANOTHER SERVER".to_owned(),
                State::NotServed => "not served by this API server (before Kubernetes 1.36)".to_owned(),
            };
            page.push_str(&format!("{name:<width$}  {state}\n"));
        }
        page.push('\n');
        for foreign in &self.external_mutators {
            page.push_str(&format!(
                "Warning: {foreign} can change a vote before it is stored: exclude the API group signoff.dev in its rules\n"
            ));
        }
        let problems = self.problems();
        match problems.as_slice() {
            [] => page.push_str("In force: the API server verifies votes.\n"),
            problems => {
                page.push_str("NOT in force: no decision is counted until this is corrected.\n");
                for problem in problems {
                    page.push_str(&format!("  {problem}\n"));
                }
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use crate::{Inspection, Object, State};

    fn object(kind: &'static str, name: &str, state: State) -> Object {
        Object { kind, name: name.to_owned(), state }
    }

    #[test]
    fn a_page_names_every_object_what_differs_and_the_remedy() {
        let inspection = Inspection {
            objects: vec![
                object("ValidatingAdmissionPolicy", "signoff-approvals", State::AsShipped),
                object(
                    "ValidatingAdmissionPolicyBinding",
                    "signoff-approvals",
                    State::Differs("spec.validationActions[0]".to_owned()),
                ),
                object("MutatingAdmissionPolicy", "signoff-requester", State::Missing),
            ],
            external_mutators: vec!["MutatingWebhookConfiguration mesh (webhook a.b.c)".to_owned()],
            ..Inspection::default()
        };
        let page = inspection.report();
        for words in [
            "as shipped",
            "DIFFERS at spec.validationActions[0]",
            "MISSING",
            "mesh",
            "NOT in force",
            "install the chart",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn where_all_is_well_the_page_says_so_in_one_sentence() {
        let inspection = Inspection {
            objects: vec![object("APIService", "v1alpha1.signoff.dev", State::AsShipped)],
            ..Inspection::default()
        };
        assert!(inspection.report().ends_with("In force: the API server verifies votes.\n"));
    }
}
