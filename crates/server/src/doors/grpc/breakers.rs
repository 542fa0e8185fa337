//! Breakers: what the HTTP door's `/v1/breakers` does, in protocol buffers.

use bytes::Bytes;
use prost::Message;

use super::answer::{Code, Failed};
use super::encode::written;
use super::proto::tollgate::v1;
use crate::breakers::{
    Acquired, BreakerError, Granted, LIST, Override, Report, Reported, Seen, Service, list_limit,
    report_within_ms, retry_after_ms,
};
use crate::telemetry::grpc::Breaking;

/// One call, read.
#[derive(Debug)]
pub(super) enum Call {
    Acquire { id: String },
    Report(v1::ReportRequest),
    State { id: String },
    List { after: Option<String>, limit: usize },
    Override { id: String, decided: Override },
    Lift { id: String },
}

/// Reads a call; what is wrong with it is said before anything is changed.
pub(super) fn read(breaking: Breaking, message: &[u8]) -> Result<Call, Failed> {
    Ok(match breaking {
        Breaking::Acquire => Call::Acquire { id: decoded::<v1::AcquireRequest>(message)?.id },
        Breaking::Report => Call::Report(decoded(message)?),
        Breaking::State => Call::State { id: decoded::<v1::StateRequest>(message)?.id },
        Breaking::List => {
            let v1::ListRequest { after, limit } = decoded(message)?;
            let limit = if limit == 0 { LIST } else { list_limit(limit.into()).map_err(failed)? };
            Call::List { after: Some(after).filter(|after| !after.is_empty()), limit }
        }
        Breaking::Override => {
            let v1::OverrideRequest { id, mode, ttl_ms, reason, who } = decoded(message)?;
            Call::Override { id, decided: Override::read(&mode, ttl_ms, &reason, &who).map_err(failed)? }
        }
        Breaking::Lift => Call::Lift { id: decoded::<v1::LiftRequest>(message)?.id },
    })
}

impl Call {
    /// What of it can undo a breaker.
    pub(super) fn undoes(&self) -> Option<&'static str> {
        match self {
            Call::Override { .. } | Call::Lift { .. } => Some("an override"),
            Call::Acquire { .. } | Call::Report(_) | Call::State { .. } | Call::List { .. } => None,
        }
    }

    /// Has it carried out; the answer as it is sent.
    ///
    /// hot path: acquire and report; no round trip while Closed or Open.
    pub(super) async fn answer(self, breakers: &Service) -> Result<Bytes, Failed> {
        Ok(match self {
            Call::Acquire { id } => written(&acquired(&breakers.acquire(&id).await.map_err(failed)?)),
            Call::Report(told) => {
                let v1::ReportRequest { id, token, outcome, elapsed_ms, retry_after_ms } = told;
                let token = Some(&*token).filter(|token| !token.is_empty());
                let report =
                    Report::read(&id, token, &outcome, elapsed_ms, retry_after_ms).map_err(failed)?;
                written(&match breakers.report(report).await.map_err(failed)? {
                    Reported::Counted => v1::ReportResponse { counted: true, why: String::new() },
                    Reported::Late(why) => v1::ReportResponse { counted: false, why: why.name().to_owned() },
                })
            }
            Call::State { id } => written(&seen(breakers.state(&id).await.map_err(failed)?)),
            Call::List { after, limit } => {
                let listed = breakers.list(after.as_deref(), limit);
                let breakers = listed.breakers.into_iter().map(seen).collect();
                written(&v1::ListResponse { breakers, more: listed.has_more })
            }
            Call::Override { id, decided } => {
                let mode = decided.mode;
                let overruled = breakers.overrule(&id, decided).await.map_err(failed)?;
                tracing::info!(
                    breaker = overruled.name,
                    mode = mode.name(),
                    "grpc: a breaker was overridden"
                );
                written(&seen(overruled))
            }
            Call::Lift { id } => {
                let lifted = breakers.lift(&id).await.map_err(failed)?;
                tracing::info!(breaker = lifted.name, "grpc: an override of a breaker was lifted");
                written(&seen(lifted))
            }
        })
    }
}

fn acquired(acquired: &Acquired) -> v1::AcquireResponse {
    match acquired {
        Acquired::Granted(Granted { token, is_probe, report_within, state }) => v1::AcquireResponse {
            allowed: true,
            state: state.name().to_owned(),
            token: token.to_string(),
            probe: *is_probe,
            report_within_ms: Some(report_within_ms(*report_within)),
            retry_after_ms: None,
        },
        Acquired::Refused { retry_after, state } => v1::AcquireResponse {
            state: state.name().to_owned(),
            retry_after_ms: Some(retry_after_ms(*retry_after)),
            ..v1::AcquireResponse::default()
        },
    }
}

fn seen(one: Seen) -> v1::Breaker {
    let (retry_after_ms, ramping) = (one.retry_after_ms(), one.is_ramping());
    let Seen { id, name, status } = one;
    let standing = status
        .overridden
        .map(|(mode, left)| v1::Standing { mode: mode.name().to_owned(), left_ms: left.as_millis_ceil() });
    v1::Breaker {
        id,
        breaker: name,
        state: status.stance.state().name().to_owned(),
        ramping,
        retry_after_ms,
        r#override: standing,
        shared: status.is_shared,
    }
}

fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Failed> {
    M::decode(message).map_err(|error| Failed::new(Code::InvalidArgument, error.to_string()))
}

fn failed(error: BreakerError) -> Failed {
    match error {
        BreakerError::Field { field, what } => {
            Failed::new(Code::InvalidArgument, format!("{field}: {what}; nothing was changed"))
        }
        BreakerError::TooMany(why) => {
            Failed::new(Code::ResourceExhausted, format!("there is no room for another breaker: {why}"))
        }
        BreakerError::Store(error) => Failed::new(
            Code::Unavailable,
            format!(
                "the store does not answer ({error}); the change may have been made, and to ask for it again does no harm"
            ),
        ),
    }
}
