//! Shapes that the types rule out and that the CRDs leave to admission: `tests/contract/shapes.json`. Each shape is
//! broken in every way to write, on the object and on its status.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::status::ONLY_THE_OPERATOR;
use super::workflow::{FIXED, WORKFLOWS, new_workflow};
use crate::attacks::Actor::{Approver, Operator, Requester};
use crate::attacks::{Actor, Gate, Object, Row, Scene, Way, approve, own, user};

/// Every way to change an existing object, including the one that no custom resource supports.
const EVERY_CHANGE: [Way; 5] = [Way::Merge, Way::Json, Way::Strategic, Way::Apply, Way::Replace];

static SHAPES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../contract/shapes.json")).unwrap_or_default());

/// A broken shape and its honest twin, both as a part of an object.
struct Shape {
    rule: &'static str,
    /// The rule, with a number where the rule has several shapes.
    name: String,
    broken: Value,
    honest: Value,
}

/// Returns the shapes of a part of the file. The field that is neither `rule` nor `honest` has the broken shape.
fn shapes(part: &str, as_part: impl Fn(&'static Map<String, Value>, &'static Value) -> Value) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    for row in SHAPES[part].as_array().into_iter().flatten().filter_map(Value::as_object) {
        let rule = row.get("rule").and_then(Value::as_str).unwrap_or_default();
        let earlier = shapes.iter().filter(|shape| shape.rule == rule).count();
        let name = if earlier == 0 { rule.to_owned() } else { format!("{rule} ({})", earlier + 1) };
        let broken = row.iter().find(|(field, _)| !["rule", "honest"].contains(&field.as_str()));
        let (Some((_, broken)), Some(honest)) = (broken, row.get("honest")) else { continue };
        shapes.push(Shape { rule, name, broken: as_part(row, broken), honest: as_part(row, honest) });
    }
    shapes
}

/// Returns the shapes of a Workflow, as fields of its spec.
fn of_workflows() -> Vec<Shape> {
    shapes("workflow", |row, part| if row.contains_key("step") { json!({"steps": [part]}) } else { part.clone() })
}

/// Returns the shapes of a decision, as entries of `spec.decisions`.
fn of_decisions() -> Vec<Shape> {
    shapes("decision", |_, part| part.clone())
}

/// Returns the shapes of an Approval's request, as fields of it.
fn of_requests() -> Vec<Shape> {
    shapes("request", |_, part| {
        let mut fields = part.clone();
        if let Some(approvers) = fields.as_object_mut().and_then(|fields| fields.remove("approvers")) {
            fields["quorums"] = json!([{"source": "gate review", "approvers": approvers, "threshold": 1}]);
        }
        fields
    })
}

pub(super) fn rows() -> Vec<Row> {
    let workflows = of_workflows().into_iter().flat_map(workflow_rows);
    let decisions = of_decisions().into_iter().flat_map(decision_rows);
    workflows
        .chain(decisions)
        .chain(of_requests().into_iter().flat_map(request_rows))
        .chain([changes_of_no_object()])
        .collect()
}

/// Returns the attacks that send a change to the status subresource. Only the operator may write the status, and the
/// operator's write changes nothing but the status.
fn by_status(who: Actor, what: &str, scene: &Scene, change: &Value) -> [Row; 2] {
    let status = if matches!(scene, Scene::Workflow(_)) { json!({"message": "it runs"}) } else { json!({"level": 1}) };
    let honest = json!({"status": status});
    [who, Operator].map(|who| {
        let row = Row::new(format!("{what}, by way of the status,"), [who], EVERY_CHANGE, change.clone())
            .with_scene(scene.clone())
            .on(Object::Sub("status"))
            .honest("the operator's status", honest.clone())
            .by(Operator);
        if who == Operator { row } else { row.refused(ONLY_THE_OPERATOR) }
    })
}

fn workflow_rows(Shape { rule, name, broken, honest }: Shape) -> Vec<Row> {
    let stored = || Scene::Workflow(json!({}));
    let creation = Row::new(
        format!("makes a Workflow of a broken shape: {name}"),
        [Requester],
        [Way::Create],
        new_workflow(broken.clone()),
    )
    .ways(&[Way::Create, Way::Apply])
    .with_scene(Scene::Nothing)
    .on(WORKFLOWS)
    .refused(rule)
    .honest("one whose shape is whole", new_workflow(honest));
    let what = format!("breaks the shape of a Workflow: {name}");
    let change = json!({"spec": broken});
    let change_row = Row::new(what.clone(), [Requester], EVERY_CHANGE, change.clone())
        .with_scene(stored())
        .refused(FIXED)
        .honest("the requester's suspend", json!({"spec": {"suspend": true}}));
    [creation, change_row].into_iter().chain(by_status(Requester, &what, &stored(), &change)).collect()
}

fn decision_rows(Shape { rule, name, broken, honest }: Shape) -> Vec<Row> {
    let asked = json!({"form": {"questions": [{"id": "answer"}]}, "escalateTo": [user("carol@example.com")]});
    let gate = || Scene::Approval(Gate { request: asked.clone(), ..Gate::default() });
    let what = format!("decides in a broken shape: {name}");
    let decision = Row::new(what.clone(), [Approver], EVERY_CHANGE, own(broken.clone()))
        .with_scene(gate())
        .refused(rule)
        .honest("a decision whose shape is whole", own(honest));
    [decision].into_iter().chain(by_status(Approver, &what, &gate(), &own(broken))).collect()
}

fn request_rows(Shape { rule, name, broken, honest }: Shape) -> Vec<Row> {
    let new = |fields: Value| json!({"{approval}": {"spec": {"request": fields}}});
    let creation = Row::new(format!("asks in a broken shape: {name}"), [Operator], [Way::Create], new(broken.clone()))
        .ways(&[Way::Create, Way::Apply])
        .with_scene(Scene::Nothing)
        .refused(rule)
        .honest("a request whose shape is whole", new(honest));
    let what = format!("breaks the shape of a request: {name}");
    let change = json!({"spec": {"request": broken}});
    let gate = || Scene::Approval(Gate::default());
    let change_row = Row::new(what.clone(), [Approver, Operator], EVERY_CHANGE, change.clone())
        .refused("request is immutable")
        .honest("an approver's vote", own(approve()))
        .by(Approver);
    [creation, change_row].into_iter().chain(by_status(Approver, &what, &gate(), &change)).collect()
}

/// Returns an attack with the ways that create no object: only a POST and an apply do.
fn changes_of_no_object() -> Row {
    let nothing = json!({"steps": [{"name": "nothing"}]});
    Row::new(
        "writes a Workflow of a broken shape where there is none",
        [Requester],
        [Way::Merge],
        new_workflow(nothing),
    )
    .ways(&[Way::Merge, Way::Json, Way::Strategic, Way::Replace])
    .with_scene(Scene::Nothing)
    .on(WORKFLOWS)
    .refused("not found")
    .honest("a create of one whose shape is whole", new_workflow(json!({})))
    .way(Way::Create)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_shape_of_the_file_is_tried() {
        let file: Value = serde_json::from_str(include_str!("../../../contract/shapes.json")).unwrap();
        let parts = [("workflow", of_workflows()), ("decision", of_decisions()), ("request", of_requests())];
        assert_eq!(file.as_object().unwrap().len(), parts.len());
        for (part, shapes) in parts {
            let rows = file[part].as_array().unwrap();
            assert!(rows.len() >= 5 && rows.len() == shapes.len(), "{part}: {} of {}", shapes.len(), rows.len());
            for (row, shape) in rows.iter().zip(shapes) {
                assert_eq!(row["rule"], shape.rule);
                assert_ne!(shape.broken, shape.honest, "{part}: {}", shape.name);
            }
        }
    }
}
