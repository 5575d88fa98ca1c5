//! The documentation: every link leads somewhere, every Workflow in it can be run, every metric it names exists.
//! These tests must not need a cluster or a network: links to other sites are not followed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use signoff_engine::{Plan, Settings};
use signoff_tests::page;

use super::examples::parse;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every page by its path below the repository.
fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![(root(), false), (root().join("docs"), true), (root().join("examples"), true)];
    while let Some((folder, deep)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && deep {
                folders.push((path, deep));
            } else if path.extension().is_some_and(|end| end == "md") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(found.iter().any(|(name, _)| name == "README.md") && found.len() > 10, "where are the pages?");
    found
}

/// The anchors of a page's headings, as they are made where the pages are read.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = page::prose(text);
    let headings = headings.lines().filter_map(|line| line.strip_prefix('#')).map(|rest| rest.trim_start_matches('#'));
    let letters = |heading: &str| {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(letters).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut broken = Vec::new();
    for (name, text) in pages() {
        for link in page::links(&text) {
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let here = root().join(&name);
            let target = if file.is_empty() { here.clone() } else { here.parent().unwrap().join(file) };
            let there = target.exists()
                && anchor.is_none_or(|anchor| anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor));
            if !there {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert_eq!(broken, [] as [String; 0], "links that lead nowhere");
}

#[test]
fn every_workflow_in_the_documentation_can_be_run() {
    let mut count = 0;
    for (page, text) in pages() {
        for found in page::blocks(&text).into_iter().filter(|block| block.language == "yaml") {
            let block = found.text();
            let refused = signoff_manifest::check(&block, &Settings::default());
            let refused: Vec<_> = refused.iter().flat_map(|checked| &checked.problems).collect();
            assert!(!refused.iter().any(|problem| problem.reason == "KubectlRefuses"), "{page}: {refused:?}");
            let tagged = found.word("workflow").is_some();
            assert_eq!(
                block.contains("kind: Workflow"),
                tagged,
                "{page}: tag Workflows, and nothing else, `yaml workflow`:\n{block}"
            );
            if tagged {
                count += 1;
                if let Err(complaints) =
                    Plan::of(&parse(&page, &block), &Settings::default(), &std::sync::Arc::default())
                {
                    let complaints: Vec<_> = complaints.iter().map(ToString::to_string).collect();
                    panic!("{page}:\n{block}\n{}", complaints.join("\n"));
                }
            }
        }
    }
    assert!(count > 5, "{count} Workflows: where are they?");
}

#[test]
fn the_page_of_each_pattern_begins_with_a_whole_workflow_of_it() {
    let mut patterns = BTreeSet::new();
    for (page, text) in pages().into_iter().filter(|(page, _)| page.starts_with("docs/patterns/")) {
        if page.ends_with("README.md") {
            continue;
        }
        let blocks = page::blocks(&text);
        let first = blocks.iter().find(|block| block.language == "yaml").unwrap_or_else(|| panic!("{page}: no YAML"));
        assert!(first.word("workflow").is_some(), "{page}: its first YAML is no whole Workflow");
        let workflow = parse(&page, &first.text());
        patterns.insert(signoff_manifest::flow::Flow::of(&workflow).pattern);
    }
    assert_eq!(patterns.len(), 7, "{patterns:?}");
}

#[test]
fn the_order_of_the_book_names_every_page_once() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut ordered: Vec<String> = page::links(&summary)
        .iter()
        .map(|target| target.strip_prefix("../").map_or_else(|| format!("docs/{target}"), str::to_owned))
        .collect();
    ordered.sort();
    let all: Vec<String> = pages().into_iter().map(|(name, _)| name).filter(|name| name != "docs/SUMMARY.md").collect();
    assert_eq!(ordered, all);
}

#[test]
fn the_documented_metrics_are_those_that_are_counted() {
    let file = |name: &str| std::fs::read_to_string(root().join(format!("operator/{name}/src/metrics.rs"))).unwrap();
    let code = [file("controller"), file("cluster")].concat();
    // The first string after the call, on its line or on the next.
    let counted: BTreeSet<_> =
        code.split("registry.register(").skip(1).filter_map(|rest| rest.split('"').nth(1)).collect();
    assert!(counted.len() > 10, "{counted:?}");
    let page = std::fs::read_to_string(root().join("docs/guides/operating.md")).unwrap();
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `signoff_")).filter_map(|rest| rest.split('`').next());
    let documented: BTreeSet<_> = rows.map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    assert_eq!(documented, counted);
}
