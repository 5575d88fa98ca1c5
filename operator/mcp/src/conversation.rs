//! The requests for listing and calling tools, over any connection.
//!
//! **Invariant:** a call is sent at most once, and not at all if the approved definition differs from the current one
//! of the server.

use serde_json::{Map, Value, json};
use signoff_api::catalogue::{Catalogue, CatalogueError, ServerTool, fits};
use signoff_executor::{CallError, ErrorClass, ToolEnding, ToolReply, ToolRequest};

use crate::{
    connection::{Connection, Question},
    message::Answered,
    pages::{ListError, ToolPages},
    param_headers,
    protocol::{MISSING_CAPABILITY, Protocol},
    result,
};

/// The error of servers of 2025-11-25 that need their user to open a web page.
const WEB_PAGE_REQUIRED: i64 = -32042;
/// The maximum number of runs before the calling run, in the chain in which each run started the next. A run with more
/// calls no server, so that loops of runs end.
const MAX_DEPTH: u32 = 3;

/// Returns the request for a page of the list of tools.
pub(crate) fn list_question(cursor: Option<String>) -> Question {
    let params = cursor.map(|cursor| ("cursor".to_owned(), Value::String(cursor)));
    Question { params: Map::from_iter(params), ..Question::new("tools/list") }
}

/// Lists the tools. `first`: the first page, if it was already read. `tool`: the only tool that is kept; `None` means
/// all.
pub(crate) async fn list(
    connection: &mut dyn Connection,
    first: Option<String>,
    tool: Option<&str>,
) -> Result<Catalogue, CallError> {
    let mut pages = ToolPages::new(tool);
    let (mut first_page, mut cursor) = (first, None);
    loop {
        let page = match first_page.take() {
            Some(page) => page,
            None => {
                let answered = connection.ask(list_question(cursor.take())).await.map_err(as_unsent)?;
                answered.result(connection.target()).map_err(as_unsent)?
            }
        };
        match pages.add(&page).map_err(|why| list_refusal(connection.target(), &why))? {
            Some(next) => cursor = Some(next),
            None => return Ok(pages.end()),
        }
    }
}

/// Checks the depth, the name of the tool and the arguments of a call before it is sent.
pub(crate) fn check(request: &ToolRequest) -> Result<(), CallError> {
    if request.depth > MAX_DEPTH {
        return Err(CallError::refused(format!(
            "the call was not sent: its run was started by {} others, one by another, and the limit is {MAX_DEPTH}",
            request.depth
        )));
    }
    if !fits(&request.tool) {
        let why = "the call was not sent: the name of its tool is not 1 to 64 letters, digits, _ and -";
        return Err(CallError::invalid(why));
    }
    if !request.arguments.is_object() {
        return Err(CallError::invalid("the call was not sent: its arguments are no object"));
    }
    Ok(())
}

/// Calls a tool, unless its definition differs from the approved one. `listed`: the current tools of the server, if a
/// definition is compared.
pub(crate) async fn call(
    connection: &mut dyn Connection,
    request: ToolRequest,
    listed: Option<&Catalogue>,
) -> Result<ToolReply, CallError> {
    let protocol = connection.protocol();
    let reply = |ending| Ok(ToolReply { protocol: protocol.version(), ending });
    let current = listed.and_then(|listed| listed.tool(&request.tool));
    let definition = current.map(ServerTool::digest);
    if request.definition.is_some() && definition != request.definition {
        return reply(ToolEnding::Changed(definition));
    }
    let schema = current.map(|tool| Value::Object(tool.parameters().0)).or(request.schema);
    let headers = match (protocol, schema) {
        (Protocol::Stateless, Some(schema)) => param_headers::of_schema(&schema)
            .map_err(str::to_owned)
            .and_then(|headers| param_headers::of_arguments(&headers, &request.arguments))
            .map_err(|why| CallError::invalid(format!("the call was not sent: {why}")))?,
        (Protocol::Stateless, None) | (Protocol::Session, _) => Vec::new(),
    };
    let params =
        Map::from_iter([("name".to_owned(), json!(request.tool)), ("arguments".to_owned(), request.arguments)]);
    let (tool, depth) = (Some(request.tool), Some(request.depth));
    let question = Question { method: "tools/call", params, tool, headers, depth };
    match connection.ask(question).await? {
        Answered::Result(json) => reply(result::read(&json).map_err(|why| why.into_error(connection.target()))?),
        Answered::AskedBack(wanted) => reply(ToolEnding::AskedBack(wanted)),
        Answered::Error(error) => reply(match error.code {
            MISSING_CAPABILITY => ToolEnding::AskedBack(capabilities(error.data.as_ref())),
            WEB_PAGE_REQUIRED => ToolEnding::AskedBack(vec!["elicitation by a web page".to_owned()]),
            code => ToolEnding::Error { code, message: error.message },
        }),
    }
}

/// Returns the names of the capabilities that a server needs. A capability with an unknown name is not named.
fn capabilities(data: Option<&Value>) -> Vec<String> {
    let needed = data.and_then(|data| data.get("requiredCapabilities")).and_then(Value::as_object);
    let known = ["elicitation", "roots", "sampling", "tasks"];
    let words = known.into_iter().filter(|word| needed.is_some_and(|needed| needed.contains_key(*word)));
    let words: Vec<String> = words.map(str::to_owned).collect();
    if words.is_empty() { vec!["a capability that is not offered".to_owned()] } else { words }
}

/// Returns an error as one from before the call was sent: the call was certainly not made. An error status of the
/// server then means that the server is unreachable.
pub(crate) fn as_unsent(error: CallError) -> CallError {
    let is_away = matches!(error.class, ErrorClass::Status(408 | 500..));
    let class = if is_away { ErrorClass::Unreachable } else { error.class };
    CallError { class, sent: false, ..error }
}

fn list_refusal(target: &str, why: &ListError) -> CallError {
    let class = match why {
        ListError::Form(_) => ErrorClass::Protocol,
        ListError::TooManyPages
        | ListError::RepeatedCursor
        | ListError::Catalogue(
            CatalogueError::Twice(_)
            | CatalogueError::TooManyTools
            | CatalogueError::TooLarge
            | CatalogueError::TooManyValues,
        ) => ErrorClass::Refused,
    };
    CallError::new(class, false, format!("{target} offers no tools: {why}"))
}
