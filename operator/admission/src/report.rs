//! The report of an inspection for administrators: the objects in force, the differences and the remedies *(pure)*.
//!
//! **Invariant:** names every object that is not as shipped.

use std::collections::BTreeMap;

use crate::{Inspection, Object, State, compare::REMEDY, policies::Identity};

/// The most objects of a kind whose differences are printed without `details`.
const MOST_DIFFERENCES: usize = 4;
/// The most columns of a line of names.
const WIDTH: usize = 79;

impl Inspection {
    /// Returns the report for a terminal. With `details`, it has a line for each object. Without, it lists only the
    /// objects that are not as shipped, by kind.
    #[must_use]
    pub fn report(&self, details: bool) -> String {
        let mut page = String::new();
        if let Some(identity) = &self.identity {
            page.push_str(&format!("Operator that the rules trust: {}\n\n", Identity::user_name(identity)));
        }
        page.push_str(&if details { self.list_objects() } else { self.list_differences() });
        page.push('\n');
        for foreign in &self.external_mutators {
            page.push_str(&format!(
                "Warning: {foreign} can change a vote before it is stored: exclude the API group signoff.dev in its rules\n"
            ));
        }
        if self.problems().is_empty() {
            page.push_str("In force: the API server verifies votes.\n");
            return page;
        }
        page.push_str("NOT in force: no decision is counted until this is corrected.\n");
        let is_mended_by_chart = |object: &Object| matches!(object.state, State::Missing | State::Differs(_));
        if self.objects.iter().any(is_mended_by_chart) {
            page.push_str(&format!("  Remedy: {REMEDY}\n"));
        }
        for object in self.objects.iter().filter(|object| object.state == State::Elsewhere) {
            page.push_str(&format!("  Remedy: delete the {} {}\n", object.kind, object.name));
        }
        for complaint in &self.complaints {
            page.push_str(&format!("  {complaint}\n"));
        }
        page
    }

    /// Returns a line with the kind, the name and the state of each object.
    fn list_objects(&self) -> String {
        let names: Vec<_> = self.objects.iter().map(|object| format!("{}/{}", object.kind, object.name)).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        let format_line = |(name, object): (&String, &Object)| format!("{name:<width$}  {}\n", describe_state(object));
        names.iter().zip(&self.objects).map(format_line).collect()
    }

    /// Returns the number of objects that are as shipped, and the other objects by kind.
    fn list_differences(&self) -> String {
        let is_as_shipped = |object: &&Object| matches!(object.state, State::AsShipped | State::NotServed);
        let as_shipped = self.objects.iter().filter(is_as_shipped).count();
        let count = self.objects.len();
        let mut page = format!("{as_shipped} of {count} objects are as shipped (--verbose lists them).\n");
        let mut kinds: BTreeMap<&str, Vec<&Object>> = BTreeMap::new();
        for object in self.objects.iter().filter(|object| !is_as_shipped(object)) {
            kinds.entry(object.kind).or_default().push(object);
        }
        for (kind, objects) in kinds {
            let (missing, others): (Vec<_>, Vec<_>) =
                objects.into_iter().partition(|object| object.state == State::Missing);
            page.push_str(&list_names(kind, "MISSING", &missing));
            if others.len() > MOST_DIFFERENCES {
                page.push_str(&list_names(kind, "different", &others));
            } else {
                let line = |object: &&Object| format!("{kind} {}:\n  {}\n", object.name, describe_state(object));
                page.extend(others.iter().map(line));
            }
        }
        page
    }
}

fn describe_state(object: &Object) -> String {
    match &object.state {
        State::AsShipped if object.kind == "APIService" => "served by this API server".to_owned(),
        State::AsShipped => "as shipped".to_owned(),
        State::Differs(place) => format!("DIFFERS at {place}"),
        State::Missing => "MISSING".to_owned(),
        State::Elsewhere => "SERVED BY ANOTHER SERVER".to_owned(),
        State::NotServed => "not served by this API server (before Kubernetes 1.36)".to_owned(),
    }
}

/// Returns `5 CustomResourceDefinitions are MISSING: a, b, …`, wrapped at spaces.
fn list_names(kind: &str, what: &str, objects: &[&Object]) -> String {
    let head = match objects.len() {
        0 => return String::new(),
        1 => format!("{kind} is {what}:"),
        count => match kind.strip_suffix('y') {
            Some(stem) => format!("{count} {stem}ies are {what}:"),
            None => format!("{count} {kind}s are {what}:"),
        },
    };
    let (mut page, mut line) = (String::new(), head);
    for (index, object) in objects.iter().enumerate() {
        let word = format!("{}{}", object.name, if index + 1 < objects.len() { "," } else { "" });
        if line.len() + 1 + word.len() > WIDTH {
            page.push_str(&format!("{line}\n"));
            line = format!("  {word}");
        } else {
            line.push_str(&format!(" {word}"));
        }
    }
    format!("{page}{line}\n")
}

#[cfg(test)]
mod tests {
    use crate::{Inspection, Object, State};

    fn object(kind: &'static str, name: &str, state: State) -> Object {
        Object { kind, name: name.to_owned(), state }
    }

    #[test]
    fn a_report_names_each_difference_and_the_remedy() {
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
        for details in [true, false] {
            let page = inspection.report(details);
            for words in
                ["DIFFERS at spec.validationActions[0]", "MISSING", "mesh", "NOT in force", "install the chart"]
            {
                assert!(page.contains(words), "{words}: {page}");
            }
            assert_eq!(page.contains("as shipped\n"), details, "{page}");
        }
    }

    #[test]
    fn a_report_without_any_object_of_the_chart_is_short() {
        let missing =
            |kind, count: usize| (0..count).map(move |n| object(kind, &format!("signoff-{n}"), State::Missing));
        let objects = missing("CustomResourceDefinition", 5).chain(missing("ValidatingAdmissionPolicy", 14));
        let page = Inspection { objects: objects.collect(), ..Inspection::default() }.report(false);
        assert_eq!(
            page,
            "0 of 19 objects are as shipped (--verbose lists them).\n\
             5 CustomResourceDefinitions are MISSING: signoff-0, signoff-1, signoff-2,\n\
             \x20 signoff-3, signoff-4\n\
             14 ValidatingAdmissionPolicies are MISSING: signoff-0, signoff-1, signoff-2,\n\
             \x20 signoff-3, signoff-4, signoff-5, signoff-6, signoff-7, signoff-8, signoff-9,\n\
             \x20 signoff-10, signoff-11, signoff-12, signoff-13\n\
             \n\
             NOT in force: no decision is counted until this is corrected.\n\
             \x20 Remedy: install the chart of this operator's version again\n"
        );
    }

    #[test]
    fn the_report_of_an_intact_guard_ends_with_one_sentence() {
        let inspection = Inspection {
            objects: vec![object("APIService", "v1alpha1.signoff.dev", State::AsShipped)],
            ..Inspection::default()
        };
        assert!(inspection.report(false).ends_with("In force: the API server verifies votes.\n"));
    }
}
