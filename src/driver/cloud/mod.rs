//! What drivers of real clouds share. All of it is pure but [`coalesce`], which joins look-ups that
//! wait at the same time, and [`requests`], which measures them.

mod coalesce;
mod http;
mod markers;
mod provider_id;
mod requests;
mod secret;
mod text;
mod token;

pub(crate) use coalesce::Coalescer;
pub(crate) use http::code_of_status;
pub(crate) use markers::{MarkerNames, Markers};
pub(crate) use provider_id::ProviderIds;
pub(crate) use requests::Requests;
pub(crate) use secret::Secrets;
pub(crate) use text::safe_text;
pub(crate) use token::idempotency_token;
