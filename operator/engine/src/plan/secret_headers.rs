//! The headers of a request whose values are keys of Secrets, checked so that a value can go to one server only.

use signoff_api::{
    sent_method::{are_one_header, names_a_method},
    step::HttpStep,
};

use super::{PlannedSecretHeaders, Validator, planned_agent::name_an_entry, step::StepContext};
use crate::{policy, transition::SentSecret};

impl Validator<'_> {
    /// Plans the headers of a request whose values are keys of Secrets; `None` if there are none, or after an error.
    pub(super) fn plan_secret_headers(
        &mut self,
        http: &HttpStep,
        context: &StepContext<'_>,
    ) -> Option<PlannedSecretHeaders> {
        if http.secret_headers.is_empty() {
            return None;
        }
        let origin = policy::fixed_origin(&http.url);
        if origin.is_none() {
            self.error(
                context.field("http.url"),
                "a URL that is sent a Secret begins with scheme, host and `/` as literal text: \
                 write it as in `https://api.example.com/{{ inputs.path }}`",
            );
        }
        if origin.as_ref().is_some_and(|origin| origin.scheme() == "http") {
            self.warn(
                &context.field("http.url"),
                "the Secret is sent without TLS, which its annotation signoff.dev/allowed-hosts must allow as `http://host:port`: \
                 use https",
            );
        }
        let mut headers = Vec::new();
        for (at, header) in http.secret_headers.iter().enumerate() {
            let field = context.field(&format!("http.secretHeaders[{at}]"));
            let earlier = http.secret_headers.iter().take(at).map(|other| &other.name);
            if http.headers.keys().chain(earlier).any(|other| are_one_header(other, &header.name)) {
                let message = format!("the step has another header {}: leave one of them out", header.name);
                self.error(format!("{field}.name"), message);
            }
            if names_a_method(&header.name) {
                let message = format!("{} names the method of the request: set `method` instead", header.name);
                self.error(format!("{field}.name"), message);
            }
            let Some(entry) = context.plan.spec.secrets.iter().find(|entry| entry.name == header.from) else {
                let remedy = name_an_entry(context.plan.spec);
                self.error(format!("{field}.from"), format!("it is no name of spec.secrets: {remedy}"));
                continue;
            };
            let (header, prefix) = (header.name.clone(), header.prefix.clone().unwrap_or_default());
            headers.push(SentSecret { header, prefix, entry: entry.clone() });
        }
        Some(PlannedSecretHeaders { origin: origin?, headers })
    }
}
