//! The list of tools of a server, read page by page, with limits.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use signoff_api::catalogue::{Catalogue, CatalogueError, Listing};

use crate::param_headers;

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 16;
/// The maximum size of the cursor of the next page, in bytes.
const MAX_CURSOR: usize = 4096;

/// The reason why a list is refused. None of its tools are offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListError {
    /// The tools are not a valid catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// More pages than [`MAX_PAGES`].
    #[error("its list has more than {} pages", MAX_PAGES)]
    TooManyPages,
    /// A cursor was repeated, so the list would never end.
    #[error("its list of tools names a page again that was read already")]
    RepeatedCursor,
    /// The page is not a list of tools.
    #[error("{0}")]
    Form(&'static str),
}

/// The pages of a list that were read so far.
#[derive(Debug, Default)]
pub(crate) struct ToolPages {
    listing: Listing,
    cursors: BTreeSet<String>,
    pages: usize,
}

/// A page of a list, as written by the server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

impl ToolPages {
    /// Returns an empty list. `tool` is the only tool that is kept; `None` means all.
    pub(crate) fn new(tool: Option<&str>) -> Self {
        Self { listing: tool.map(Listing::of_tool).unwrap_or_default(), ..Self::default() }
    }

    /// Adds a page, the JSON of a result. Returns the cursor of the next page, if there is one.
    pub(crate) fn add(&mut self, page: &str) -> Result<Option<String>, ListError> {
        const NO_LIST: ListError = ListError::Form("it answered something other than a list of tools");
        let page: Page<'_> = serde_json::from_str(page).map_err(|_| NO_LIST)?;
        self.pages += 1;
        for tool in page.tools {
            self.listing.add(tool.get(), |definition| {
                let schema = definition.get("inputSchema").unwrap_or(&Value::Null);
                param_headers::of_schema(schema).err()
            })?;
        }
        let Some(cursor) = page.next_cursor else { return Ok(None) };
        if cursor.len() > MAX_CURSOR {
            return Err(ListError::Form("the mark of its next page has more than 4096 bytes"));
        }
        if !self.cursors.insert(cursor.clone()) {
            return Err(ListError::RepeatedCursor);
        }
        if self.pages == MAX_PAGES { Err(ListError::TooManyPages) } else { Ok(Some(cursor)) }
    }

    /// Returns the catalogue.
    pub(crate) fn end(self) -> Catalogue {
        self.listing.end()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> Value {
        json!({"name": name, "inputSchema": {"type": "object"}})
    }

    fn read(pages: &[Value]) -> Result<Catalogue, ListError> {
        let mut read = ToolPages::new(None);
        for page in pages {
            if read.add(&page.to_string())?.is_none() {
                break;
            }
        }
        Ok(read.end())
    }

    fn page(tools: Vec<Value>) -> Value {
        json!({"tools": tools})
    }

    fn names(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.tools().iter().map(|tool| tool.name()).collect()
    }

    #[test]
    fn the_order_of_pages_and_tools_does_not_matter() {
        let one = read(&[json!({"tools": [tool("b"), tool("a")], "nextCursor": ""}), page(vec![tool("c")])]).unwrap();
        let other = read(&[page(vec![tool("c"), tool("a"), tool("b")])]).unwrap();
        assert_eq!(one, other);
        assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&other).unwrap());
        assert_eq!(names(&one), ["a", "b", "c"]);
    }

    #[test]
    fn a_list_with_too_many_pages_is_refused() {
        let pages = |count: usize| -> Vec<Value> {
            (1..=count)
                .map(|at| {
                    let mut page = page(vec![tool(&format!("t{at}"))]);
                    if at < count {
                        page["nextCursor"] = json!(at.to_string());
                    }
                    page
                })
                .collect()
        };
        assert_eq!(read(&pages(MAX_PAGES)).unwrap().tools().len(), MAX_PAGES);
        assert_eq!(read(&pages(MAX_PAGES + 1)), Err(ListError::TooManyPages));
    }

    #[test]
    fn a_list_with_a_repeated_cursor_or_name_is_refused() {
        let circle = |name: &str| json!({"tools": [tool(name)], "nextCursor": "again"});
        assert_eq!(read(&[circle("a"), circle("b")]), Err(ListError::RepeatedCursor));
        let twice = Err(ListError::Catalogue(CatalogueError::Twice("a".to_owned())));
        assert_eq!(read(&[page(vec![tool("a"), tool("a")])]), twice);
        assert_eq!(read(&[json!({"tools": [tool("a")], "nextCursor": "b"}), page(vec![tool("a")])]), twice);
    }

    #[test]
    fn an_invalid_list_is_refused() {
        for other in [json!({}), json!({"tools": null}), json!({"tools": {}}), json!({"tools": [], "nextCursor": 7})] {
            assert!(matches!(read(std::slice::from_ref(&other)), Err(ListError::Form(_))), "{other}");
        }
        let long = json!({"tools": [], "nextCursor": "x".repeat(5000)});
        assert!(matches!(read(&[long]), Err(ListError::Form(_))));
    }

    #[test]
    fn a_tool_with_invalid_headers_is_left_out_with_the_reason() {
        let wants = json!({"name": "a", "inputSchema": {"type": "object", "x-mcp-header": "A"}});
        let catalogue = read(&[page(vec![wants, tool("b")])]).unwrap();
        assert_eq!(names(&catalogue), ["b"]);
        let why = "its definition is invalid: a header is wanted of something that is no argument";
        assert_eq!(catalogue.left_out()[0].why, why);
    }

    #[test]
    fn a_list_for_one_tool_keeps_that_tool() {
        let mut pages = ToolPages::new(Some("b"));
        assert_eq!(pages.add(&page(vec![tool("a"), tool("b")]).to_string()), Ok(None));
        assert_eq!(names(&pages.end()), ["b"]);
    }
}
