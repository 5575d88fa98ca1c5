//! Tests of catalogues: limits, names, digests, hints, and tools that are left out.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn listed(tools: Value) -> Result<Catalogue, CatalogueError> {
    let mut listing = Listing::default();
    for tool in tools.as_array().unwrap() {
        listing.add(&tool.to_string(), |_| None)?;
    }
    Ok(listing.end())
}

/// Returns a definition with these further fields.
fn defined(name: &str, more: Value) -> Value {
    let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

fn plain(name: &str) -> Value {
    defined(name, json!({}))
}

fn long(name: &str, bytes: usize) -> Value {
    defined(name, json!({"description": "x".repeat(bytes)}))
}

fn tool(definition: Value) -> ServerTool {
    listed(json!([definition])).unwrap().tools.remove(0)
}

fn names(catalogue: &Catalogue) -> Vec<&str> {
    catalogue.tools().iter().map(ServerTool::name).collect()
}

/// Returns the reason why a tool is left out.
fn why(definition: Value) -> String {
    let catalogue = listed(json!([definition])).unwrap();
    assert!(catalogue.tools().is_empty(), "{catalogue:?}");
    catalogue.left_out()[0].why.clone()
}

#[test]
fn a_catalogue_has_the_offered_tools_in_the_order_of_their_names() {
    let all = listed(json!([plain("refund"), plain("hidden"), plain("get_customer"), plain("hid.den")])).unwrap();
    let catalogue = all.only(|name| !name.starts_with("hid"));
    assert_eq!(names(&catalogue), ["get_customer", "refund"]);
    let text = serde_json::to_string(&catalogue).unwrap();
    let schema = r#""inputSchema":{"type":"object"}"#;
    assert_eq!(text, format!(r#"{{"tools":[{{{schema},"name":"get_customer"}},{{{schema},"name":"refund"}}]}}"#));
    assert_eq!(serde_json::from_str::<Catalogue>(&text).unwrap(), catalogue);
    assert_eq!(listed(json!([plain("b"), plain("a")])), listed(json!([plain("a"), plain("b")])));
}

#[test]
fn a_recorded_catalogue_is_read_again_as_it_was() {
    let unfit = [plain("a.b"), long("long", 20_000), json!({"title": "no name"}), plain("größe")];
    let tools = [[plain("b"), plain("a")].as_slice(), &unfit].concat();
    let catalogue = listed(json!(tools)).unwrap();
    assert_eq!(names(&catalogue), ["a", "b"]);
    let again: Catalogue = serde_json::from_value(serde_json::to_value(&catalogue).unwrap()).unwrap();
    assert_eq!(again, catalogue);
    let left_out: Vec<_> = again.left_out().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(left_out, ["", "a.b", "gr\\u{f6}\\u{df}e", "long"]);
    for recorded in [
        json!(null),
        json!({"tools": 1}),
        json!({"tools": [plain("a"), plain("a")]}),
        json!({"tools": [plain("a")], "leftOut": [{"name": "a", "why": "x"}]}),
        json!({"tools": [], "leftOut": vec![json!({"name": "a b", "why": "x"}); 257]}),
    ] {
        assert!(serde_json::from_value::<Catalogue>(recorded.clone()).is_err(), "{recorded}");
    }
}

#[test]
fn a_name_that_does_not_fit_is_left_out_and_shown_without_special_characters() {
    let long = "x".repeat(65);
    for (name, shown) in [
        ("a.b", "a.b"),
        ("", ""),
        ("a b", "a b"),
        ("a/b", "a/b"),
        ("a\nb", "a\\nb"),
        ("refund\u{200b}", "refund\\u{200b}"),
        ("r\u{435}fund", "r\\u{435}fund"),
        (long.as_str(), long.as_str()),
    ] {
        let catalogue = listed(json!([plain(name)])).unwrap();
        assert_eq!(catalogue.tools().len(), 0, "{name:?}");
        let left_out = &catalogue.left_out()[0];
        assert_eq!(left_out.name, shown);
        assert_eq!(left_out.why, "its name is not 1 to 64 letters, digits, _ and -");
    }
    assert_eq!(names(&listed(json!([plain("Fits_1-2"), plain(&"x".repeat(64))])).unwrap()).len(), 2);
}

#[test]
fn tools_that_are_left_out_take_few_bytes() {
    let tools: Vec<_> = (0..256).map(|at| plain(&format!("{at} {}", "\u{435}".repeat(2000)))).collect();
    let catalogue = listed(json!(tools)).unwrap();
    assert_eq!(catalogue.left_out().len(), 256);
    let recorded = serde_json::to_string(&catalogue).unwrap();
    assert!(recorded.len() < 64 * 1024, "{}", recorded.len());
}

#[test]
fn a_duplicate_name_refuses_the_whole_list() {
    let twice = |name: &str| Err(CatalogueError::Twice(name.to_owned()));
    for pair in [
        [plain("a"), defined("a", json!({"description": "other"}))],
        // An invalid definition does not hide another one of the same name.
        [long("a", 20_000), plain("a")],
        [plain("a"), long("a", 20_000)],
    ] {
        assert_eq!(listed(json!(pair)), twice("a"));
    }
    assert_eq!(listed(json!([plain("a.b"), plain("a.b")])), twice("a.b"));
    let long = format!("{}\n", "x".repeat(100_000));
    let refused = listed(json!([plain(&long), plain(&long)])).unwrap_err().to_string();
    assert_eq!(refused.chars().count(), MAX_NAME_LEFT_OUT + "it lists the tool  twice".len());
    // The same for a listing that keeps another tool.
    let mut listing = Listing::of_tool("refund");
    listing.add(&plain("a").to_string(), |_| None).unwrap();
    assert_eq!(listing.add(&plain("a").to_string(), |_| None), twice("a").map(|_: Catalogue| ()));
}

#[test]
fn a_listing_of_one_tool_keeps_that_one() {
    let mut listing = Listing::of_tool("refund");
    for tool in [plain("get_customer"), plain("refund"), plain("a b")] {
        listing.add(&tool.to_string(), |_| None).unwrap();
    }
    let catalogue = listing.end();
    assert_eq!((names(&catalogue), catalogue.left_out().len()), (vec!["refund"], 0));
}

#[test]
fn a_list_beyond_a_bound_is_refused() {
    let many = |count: usize| json!((0..count).map(|at| plain(&format!("tool-{at}"))).collect::<Vec<_>>());
    assert_eq!(listed(many(256)).unwrap().tools().len(), 256);
    assert_eq!(listed(many(257)), Err(CatalogueError::TooManyTools));
    // The same if no tool can be offered.
    let unfit: Vec<_> = (0..257).map(|at| plain(&format!("tool {at}"))).collect();
    assert_eq!(listed(json!(unfit)), Err(CatalogueError::TooManyTools));
    let large = |count: usize| json!((0..count).map(|at| long(&format!("t{at}"), 16_000)).collect::<Vec<_>>());
    let catalogue = listed(large(32)).unwrap();
    assert!(catalogue.bytes() > 500_000 && catalogue.bytes() <= MAX_BYTES);
    assert_eq!(listed(large(33)), Err(CatalogueError::TooLarge));
    let full = |count: usize, values: usize| {
        let examples = vec![json!([]); values];
        let schema = json!({"type": "object", "examples": examples});
        json!((0..count).map(|at| json!({"name": format!("t{at}"), "inputSchema": schema})).collect::<Vec<_>>())
    };
    // Two bytes a value: few bytes could take very much memory.
    assert_eq!(listed(full(16, 900)).unwrap().tools().len(), 16);
    assert_eq!(listed(full(20, 900)), Err(CatalogueError::TooManyValues));
    let catalogue = listed(full(1, 3000)).unwrap();
    assert_eq!((catalogue.tools().len(), catalogue.left_out().len()), (0, 1));
}

#[test]
fn a_definition_that_the_api_server_would_change_is_left_out() {
    let schema = |more: serde_json::Value| json!([{"name": "a", "inputSchema": {"type": "object", "more": more}}]);
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    for stable in [json!(0.5), json!(1e15), json!(-1.5e-7), json!(9_007_199_254_740_991_u64), json!(0.0), nested(29)] {
        assert_eq!(listed(schema(stable.clone())).unwrap().tools().len(), 1, "{stable}");
    }
    for unstable in [json!(1e18), json!(-1e300), json!(5e-324), nested(40), nested(120)] {
        let catalogue = listed(schema(unstable.clone())).unwrap();
        assert_eq!((catalogue.tools().len(), catalogue.left_out().len()), (0, 1), "{unstable}");
    }
}

#[test]
fn values_are_counted_outside_texts_only() {
    for (json, count) in [("7", 1), (r#""a,[{""#, 1), (r#""\\",["#, 3), ("[1,2]", 3), (r#"{"a\"[":[1,{}]}"#, 5)] {
        assert_eq!(count_values(json), count, "{json}");
    }
}

#[test]
fn a_definition_beyond_its_bound_is_left_out() {
    let rest = tool(long("a", 0)).bytes();
    assert_eq!(tool(long("a", MAX_DEFINITION_BYTES - rest)).bytes(), MAX_DEFINITION_BYTES);
    for bytes in [MAX_DEFINITION_BYTES - rest + 1, 200_000] {
        assert_eq!(why(long("a", bytes)), "its definition has more than 16384 bytes");
    }
    // Fields that are not kept do not count.
    let icon = json!([{"src": format!("data:image/png;base64,{}", "A".repeat(200_000))}]);
    assert_eq!(tool(defined("a", json!({"icons": icon}))).bytes(), rest - r#""description":"","#.len());
}

#[test]
fn a_definition_of_another_form_is_left_out() {
    for (field, value) in [
        ("inputSchema", json!(null)),
        ("inputSchema", json!(["no object"])),
        ("inputSchema", json!({"type": "array"})),
        ("inputSchema", json!({"type": "object", "maximum": 9_007_199_254_740_993_u64})),
        ("description", json!(["a"])),
        ("title", json!(7)),
    ] {
        let why = why(defined("a", json!({field: value})));
        assert!(why.starts_with("its definition is invalid: "), "{field}: {why}");
    }
    for text in ["null", "[]", "7", "{}", r#"{"name": 7}"#, r#"{"name": "a", "inputSchema": }"#] {
        let mut listing = Listing::default();
        listing.add(text, |_| None).unwrap();
        let catalogue = listing.end();
        assert_eq!((catalogue.tools().len(), catalogue.left_out().len()), (0, 1), "{text}");
    }
    assert_eq!(why(json!({"name": "a"})), "its definition is invalid: its inputSchema is not of type object");
    let tasks = json!({"execution": {"taskSupport": "required"}});
    assert_eq!(why(defined("a", tasks)), "it runs only as a task, which is declined");
    assert_eq!(tool(defined("a", json!({"execution": {"taskSupport": "optional"}}))).name(), "a");
}

#[test]
fn a_definition_that_the_client_cannot_call_is_left_out_with_its_reason() {
    let mut listing = Listing::default();
    listing.add(&plain("a").to_string(), |_| Some("two arguments want the same header")).unwrap();
    let left_out = listing.end().left_out;
    assert_eq!(left_out[0].why, "its definition is invalid: two arguments want the same header");
}

#[test]
fn the_digest_is_of_everything_but_meta_and_icons() {
    let refund = |more: Value| tool(defined("refund", more));
    let plain = refund(json!({"description": "Refunds."}));
    let decorated = refund(json!({"_meta": {"a": 1}, "description": "Refunds.", "icons": []}));
    assert_eq!(plain.digest(), decorated.digest());
    assert_eq!(decorated.definition().len(), 3, "neither is recorded");
    let mut listing = Listing::default();
    let spelled = r#" {"inputSchema": {"type":"object"}, "description":"Ref\u0075nds.","name" :"refund"} "#;
    listing.add(spelled, |_| None).unwrap();
    assert_eq!(listing.end().tools()[0].digest(), plain.digest());
    for other in [
        json!({"description": "Refunds twice."}),
        json!({"description": "Refunds.\u{200b}"}),
        json!({"description": "Refunds.", "title": "Refund"}),
        json!({"description": "Refunds.", "annotations": {"readOnlyHint": true}}),
        json!({"description": "Refunds.", "inputSchema": {"type": "object", "required": []}}),
        json!({"description": "Refunds.", "outputSchema": {"type": "object"}}),
        json!({"description": "Refunds.", "a field of a later version": 1}),
    ] {
        assert_ne!(plain.digest(), refund(other.clone()).digest(), "{other}");
    }
    assert_ne!(plain.digest(), tool(defined("refunds", json!({"description": "Refunds."}))).digest());
}

#[test]
fn the_worse_of_contradicting_annotations_counts() {
    for (annotations, effects) in [
        (json!({}), None),
        (json!({"readOnlyHint": true}), Some(Effects::Read)),
        (json!({"readOnlyHint": true, "destructiveHint": false}), Some(Effects::Read)),
        (json!({"readOnlyHint": true, "destructiveHint": true}), Some(Effects::Irreversible)),
        (json!({"readOnlyHint": false, "destructiveHint": false}), Some(Effects::Write)),
        (json!({"destructiveHint": true}), Some(Effects::Irreversible)),
        (json!({"readOnlyHint": "true"}), None),
        (json!({"readOnlyHint": true, "destructiveHint": "true"}), Some(Effects::Read)),
        (json!("readOnlyHint"), None),
    ] {
        let hinted = tool(defined("a", json!({"annotations": annotations}))).hinted_effects();
        assert_eq!(hinted, effects, "{annotations}");
    }
}

#[test]
fn the_schema_of_arguments_is_from_the_definition() {
    let given = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    let parameters = tool(defined("a", json!({"inputSchema": given}))).parameters();
    assert_eq!(serde_json::to_value(parameters).unwrap(), given);
}
