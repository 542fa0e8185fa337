//! Problem documents (RFC 9457): what was wrong, in which field, and what is allowed instead.

use std::borrow::Cow;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use super::Answer;

/// One problem document. Boxed: nearly every request has none, and should not carry room for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    document: Box<Document>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Document {
    status: StatusCode,
    /// What kind of problem it is, for programs: the end of `urn:tollgate:problem:…`.
    kind: &'static str,
    /// What kind of problem it is, for people.
    title: &'static str,
    /// What is wrong here, and what is allowed.
    detail: Cow<'static, str>,
    /// The field to blame: `checks[2].limit`.
    field: Option<String>,
    /// A header that belongs to the status.
    header: Option<(HeaderName, &'static str)>,
}

impl Problem {
    /// A problem without a field.
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        let detail = detail.into();
        Problem { document: Box::new(Document { status, kind, title, detail, field: None, header: None }) }
    }

    /// A field that will not do.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Problem {
        let title = "a field is not acceptable; nothing was spent";
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, "bad-field", title, detail);
        problem.document.field = Some(field.into());
        problem
    }

    /// Fields that are right by themselves, and not together.
    pub(crate) fn conflict(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Problem {
        let title = "fields contradict each other; nothing was spent";
        let mut problem = Problem::new(StatusCode::CONFLICT, "conflict", title, detail);
        problem.document.field = Some(field.into());
        problem
    }

    /// A mistake on our side.
    pub(crate) fn unfinished() -> Problem {
        let title = "a mistake on our side; nothing was spent";
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            title,
            "the policy came without its settings",
        )
    }

    /// A field that will not do, where something was to be changed.
    pub(crate) fn unchanged(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Problem {
        let mut problem = Problem::field(field, detail);
        problem.document.title = "a field is not acceptable; nothing was changed";
        problem
    }

    fn with_header(mut self, name: HeaderName, value: &'static str) -> Problem {
        self.document.header = Some((name, value));
        self
    }

    /// There is nothing at this path.
    pub(crate) fn not_found(paths: &'static str) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", "there is nothing here", paths)
    }

    /// The path is right and the method is not.
    pub(crate) fn method(allowed: &'static str) -> Problem {
        let title = "this path answers another method";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, format!("use {allowed}"))
            .with_header(ALLOW, allowed)
    }

    /// A token is needed, or another one.
    pub(crate) fn no_token(what: &str) -> Problem {
        let detail = format!("{what} needs the header `authorization: Bearer TOKEN`");
        Problem::new(StatusCode::UNAUTHORIZED, "no-token", "a token is needed", detail)
            .with_header(WWW_AUTHENTICATE, "Bearer realm=\"tollgate\"")
    }

    /// What kind of problem it is, for people.
    pub(crate) fn title(&self) -> &'static str {
        self.document.title
    }

    /// The document as text.
    pub(crate) fn document(&self) -> String {
        let Document { status, kind, title, detail, field, .. } = &*self.document;
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut document = format!(
            "{{\"type\":\"urn:tollgate:problem:{}\",\"title\":{},\"status\":{},\"detail\":{}",
            kind,
            quoted(title),
            status.as_u16(),
            quoted(detail)
        );
        if let Some(field) = field {
            document.push_str(",\"field\":");
            document.push_str(&quoted(field));
        }
        document.push_str("}\n");
        document
    }

    /// The document, ready to be sent.
    pub(crate) fn answer(&self) -> Answer {
        let Document { status, header, .. } = &*self.document;
        let document = self.document();
        let mut answer = Response::new(Full::new(Bytes::from(document)));
        *answer.status_mut() = *status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}
