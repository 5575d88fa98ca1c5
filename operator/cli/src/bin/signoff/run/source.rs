//! The Workflow of a file, with the values of its inputs in this run.
//!
//! **Invariant:** no given value is dropped.

use std::path::Path;

use serde_json::{Map, Value};
use signoff_api::{
    Json, Workflow,
    workflow::{Input, InputType},
};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_engine::Settings;
use signoff_expr::{json::read, nearest::did_you_mean, number};
use signoff_manifest::{Problem, check, report, source::documents};
use signoff_strands::{self as strands, read_any};

use crate::{
    exit::Exit,
    texts::{self, display_path},
};

/// A valid Workflow, ready to run.
pub struct ReadWorkflow {
    /// The Workflow; its inputs have their values.
    pub workflow: Workflow,
    /// The warnings that were shown with their lines of the file, as `FIELD: MESSAGE`.
    pub warned: Vec<String>,
}

/// Reads and checks a Workflow or a file of the Strands CLI, prints its warnings, and gives its inputs their values.
///
/// # Errors
/// The file has problems, which are printed, or a value fits no input.
pub fn read_workflow(
    file: &Path,
    user: &str,
    settings: &Settings,
    vars: &[(String, String)],
    vars_file: Option<&Path>,
) -> anyhow::Result<ReadWorkflow> {
    let texts::Text { name, text, .. } = texts::read_one(file).map_err(|why| Exit::Usage.because(why))?;
    let print_problems =
        |problems: &[Problem]| problems.iter().for_each(|p| terminal::note(&report::shown(&name, &text, p)));
    let read = read_any(&text, user, settings).map_err(|problems| {
        print_problems(&problems);
        Exit::Invalid.because(format!("{name} cannot be run: {}", report::counted(&problems)))
    })?;
    // The values of inputs follow below. An input without a value is a problem only after that.
    let warnings: Vec<_> = read.warnings.into_iter().filter(|problem| problem.reason != "InputRequired").collect();
    print_problems(&warnings);
    let warned = warnings.iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect();
    read.notes.iter().for_each(|note| terminal::note(&note.to_string()));
    if read.notes.iter().any(|note| note.weight == strands::NoteLevel::Unsupported) {
        let remedy = "make a Workflow of it with `signoff import --lenient`, change that, and run it";
        return Err(Exit::Unsupported.because(format!("{name} asks for what is not there (see above): {remedy}")));
    }
    list_policies(&text).for_each(|policy| {
        terminal::note(&format!("warning: {policy} is not applied: a local run has no approval policies; its gates and limits hold on a cluster"));
    });
    let mut workflow = *read.workflow;
    let from_file = vars_file.map(read_values).transpose()?.unwrap_or_default();
    set_inputs(&mut workflow.spec.inputs, vars, from_file).map_err(|why| Exit::Invalid.because(why))?;
    Ok(ReadWorkflow { workflow, warned })
}

/// Returns the approval policies in a text, by kind and name.
fn list_policies(text: &str) -> impl Iterator<Item = String> {
    let titles = check(text, &Settings::default()).into_iter().map(|document| document.title);
    let is_policy =
        |title: &String| ["ClusterApprovalPolicy ", "ApprovalPolicy "].iter().any(|kind| title.starts_with(kind));
    titles.filter(is_policy).map(|title| one_line(&title, 300))
}

fn set_inputs(inputs: &mut [Input], vars: &[(String, String)], from_file: Map<String, Value>) -> Result<(), String> {
    for (name, value) in from_file {
        find_input(inputs, &name)?.value = Some(Json(value));
    }
    for (name, text) in vars {
        let input = find_input(inputs, name)?;
        input.value = Some(Json(parse_value(input, text)?));
    }
    Ok(())
}

fn read_values(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = display_path(file);
    let text = texts::read_file(file).map_err(|why| Exit::Usage.because(format!("{name}: {why}")))?;
    match documents(&text).as_slice() {
        [Ok(node)] => match node.to_json() {
            Value::Object(values) => Ok(values),
            _ => Err(Exit::Invalid.because(format!("{name}: not a map from inputs to values"))),
        },
        [Err(unreadable)] => {
            let why = one_line(&unreadable.why, 1000);
            Err(Exit::Invalid.because(format!("{name}: neither YAML nor JSON: {why}")))
        }
        _ => Err(Exit::Invalid.because(format!("{name}: not a map from inputs to values"))),
    }
}

fn find_input<'i>(inputs: &'i mut [Input], name: &str) -> Result<&'i mut Input, String> {
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let hint = did_you_mean(name, names.iter().copied());
    let known =
        if names.is_empty() { "it declares none".to_owned() } else { format!("it declares {}", names.join(", ")) };
    let found = inputs.iter_mut().find(|input| input.name == name);
    found.ok_or_else(|| format!("the Workflow has no input {}: {known}{hint}", one_line(name, 63)))
}

/// Parses a text as a value of the type that its input declares.
fn parse_value(input: &Input, text: &str) -> Result<Value, String> {
    let kind = input.type_.unwrap_or_default();
    if kind == InputType::String {
        return Ok(text.into());
    }
    let value = read(text).unwrap_or(Value::Null);
    if let Some(why) = number::problem(&value) {
        return Err(format!("input {}: {why}", input.name));
    }
    let is_integral = || value.as_f64().is_some_and(|double| double.fract() == 0.0);
    let (fits, word) = match kind {
        InputType::String => (true, "a string"),
        InputType::Number => (value.is_number(), "a number"),
        InputType::Integer => (is_integral(), "an integer"),
        InputType::Boolean => (value.is_boolean(), "true or false"),
        InputType::Object => (value.is_object(), "a JSON object"),
        InputType::Array => (value.is_array(), "a JSON array"),
    };
    if fits { Ok(value) } else { Err(format!("input {} is {word}, and {} is not", input.name, one_line(text, 100))) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use serde_json::json;

    use super::*;

    fn inputs() -> Vec<Input> {
        serde_json::from_value(json!([
            {"name": "who"}, {"name": "n", "type": "integer", "default": 1}, {"name": "on", "type": "boolean"},
            {"name": "list", "type": "array"},
        ]))
        .unwrap()
    }

    fn values_of(vars: &[(&str, &str)]) -> Result<Vec<Option<Value>>, String> {
        let mut inputs = inputs();
        let vars: Vec<_> = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        set_inputs(&mut inputs, &vars, Map::new())?;
        Ok(inputs.into_iter().map(|input| input.value.map(|value| value.0)).collect())
    }

    #[test]
    fn a_value_is_read_as_its_input_declares() {
        let values = values_of(&[("who", "5"), ("n", "5"), ("on", "true"), ("list", "[1, \"a\"]")]).unwrap();
        assert_eq!(values, [Some(json!("5")), Some(json!(5)), Some(json!(true)), Some(json!([1, "a"]))]);
    }

    #[test]
    fn a_number_that_no_double_holds_is_refused_with_its_pointer() {
        let beyond = "beyond ±2^53, where JSON readers round differently; write it as a text";
        assert_eq!(values_of(&[("n", "1234567890123456789")]).unwrap_err(), format!("input n: the number is {beyond}"));
        assert_eq!(values_of(&[("n", "1e400")]).unwrap_err(), format!("input n: the number is {beyond}"));
        let list = values_of(&[("list", r#"[{"id": 123456789012345678901234567890}]"#)]);
        assert_eq!(list.unwrap_err(), format!("input list: the number at /0/id is {beyond}"));
        assert_eq!(
            values_of(&[("n", "1e3"), ("who", "1234567890123456789")]).unwrap()[0],
            Some(json!("1234567890123456789"))
        );
    }

    #[test]
    fn a_value_that_fits_no_input_is_refused_with_the_inputs_type() {
        assert_eq!(values_of(&[("n", "five")]).unwrap_err(), "input n is an integer, and five is not");
        assert_eq!(values_of(&[("on", "yes")]).unwrap_err(), "input on is true or false, and yes is not");
        assert_eq!(
            values_of(&[("wo", "x")]).unwrap_err(),
            "the Workflow has no input wo: it declares who, n, on, list; did you mean who?"
        );
    }

    #[test]
    fn values_of_options_replace_values_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vars.yaml");
        fs::write(&file, "who: Ann\nn: 7\n").unwrap();
        let mut all = inputs();
        set_inputs(&mut all, &[("n".to_owned(), "8".to_owned())], read_values(&file).unwrap()).unwrap();
        assert_eq!(all[0].value, Some(Json(json!("Ann"))));
        assert_eq!(all[1].value, Some(Json(json!(8))));
        fs::write(&file, "[]").unwrap();
        assert!(read_values(&file).unwrap_err().to_string().contains("not a map"));
    }
}
