//! Problem documents (RFC 9457): what was wrong, in which field, and what is allowed instead.

use std::borrow::Cow;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use super::Answer;

/// One problem document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Its status.
    pub(crate) status: StatusCode,
    /// What kind of problem it is, for programs: the end of `urn:tollgate:problem:…`.
    pub(crate) kind: &'static str,
    /// What kind of problem it is, for people.
    pub(crate) title: &'static str,
    /// What is wrong here, and what is allowed.
    pub(crate) detail: Cow<'static, str>,
    /// The field to blame: `checks[2].limit`.
    pub(crate) field: Option<String>,
    /// A header that belongs to the status.
    pub(crate) header: Option<(HeaderName, &'static str)>,
}

impl Problem {
    /// A problem without a field.
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        Problem { status, kind, title, detail: detail.into(), field: None, header: None }
    }

    /// A field that will not do.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Problem {
        let title = "a field is not acceptable; nothing was spent";
        Problem {
            field: Some(field.into()),
            ..Problem::new(StatusCode::BAD_REQUEST, "bad-field", title, detail)
        }
    }

    /// There is nothing at this path.
    pub(crate) fn not_found(paths: &'static str) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", "there is nothing here", paths)
    }

    /// The path is right and the method is not.
    pub(crate) fn method(allowed: &'static str) -> Problem {
        let title = "this path answers another method";
        Problem {
            header: Some((ALLOW, allowed)),
            ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, format!("use {allowed}"))
        }
    }

    /// A token is needed, or another one.
    pub(crate) fn no_token(what: &str) -> Problem {
        let title = "a token is needed";
        let detail = format!("{what} needs the header `authorization: Bearer TOKEN`");
        Problem {
            header: Some((WWW_AUTHENTICATE, "Bearer realm=\"tollgate\"")),
            ..Problem::new(StatusCode::UNAUTHORIZED, "no-token", title, detail)
        }
    }

    /// The document, ready to be sent.
    pub(crate) fn answer(&self) -> Answer {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut document = format!(
            "{{\"type\":\"urn:tollgate:problem:{}\",\"title\":{},\"status\":{},\"detail\":{}",
            self.kind,
            quoted(self.title),
            self.status.as_u16(),
            quoted(&self.detail)
        );
        if let Some(field) = &self.field {
            document.push_str(",\"field\":");
            document.push_str(&quoted(field));
        }
        document.push_str("}\n");
        let mut answer = Response::new(Full::new(Bytes::from(document)));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = &self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}
