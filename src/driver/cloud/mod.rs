//! Tools that drivers of real clouds share.
//!
//! - **The protocol.** A [`CloudDriver`] is the [`Driver`](crate::Driver) of a cloud that has [`CloudOperations`] and, for each class
//!   with its Secret, a [`CloudSession`].
//! - **Requests.** [`RestClient`] sends JSON to one URL, [`HttpClient`] anything over HTTP, with time-outs, sizes and repetition
//!   ([`HttpLimits`]). A [`TlsClientCache`] has the [`TlsOptions`] of an account, a [`CaBundle`] is that of a process. An [`AdaptiveLimiter`] keeps to the rate of a cloud that
//!   throttles; a [`RequestReporter`] measures. A [`PageCollector`] reads lists that come page by page. A [`LookupCoalescer`] joins
//!   look-ups that wait at the same time.
//! - **Credentials.** [`SecretReader`] reads the keys of a Secret, [`read_credential_file`] the file that a key names. [`TokenCache`] gets
//!   tokens and renews them, an [`LruCache`] remembers accounts. A [`JwtKey`] signs the requests of service accounts.
//! - **One VM for one Machine.** [`MachineIdentity`] is the Machine, [`CloudVm`] a VM; [`created_for`], [`known_as`] and [`only`] match
//!   them. [`idempotency_token`] is for clouds that recognize repeated requests, [`VmCreations`] for all others. An [`AbsenceCache`]
//!   spares a creation the look-up that the controllers have just made. [`ProviderIds`] are how Machines name VMs, and [`ClassMarkers`]
//!   how VMs name their cluster.
//! - **Long work.** [`until_done`] follows what a cloud carries out after its answer.
//! - **Errors.** A [`CloudFailure`] is a call that failed, with its possible effect and its code ([`code_of_status`]). A
//!   [`VmLookupError`] is a look-up without a VM; a [`VmAbsence`] in it proves that the VM does not exist. [`safe_text`] shows the
//!   words of a cloud without secrets.
//! - **User data.** A [`UserDataLimit`] refuses what a cloud does not take, and compresses what cloud-init can read so.
//! - **Fields.** [`check_provider`], [`filled`], [`choice`], [`known`] and [`number`] read what classes of several clouds have. The rest is
//!   in [`crate::spec`].

mod absences;
mod access;
mod answer;
mod ca_bundle;
mod class;
mod client;
mod coalesce;
mod creations;
mod credential_file;
mod failure;
mod fields;
mod finder;
mod http;
mod instance_name;
mod jwt;
mod limiter;
mod markers;
mod operations;
mod pace;
mod pages;
mod provider_id;
mod query;
mod recent;
mod requests;
mod rest;
mod secret;
mod text;
mod tls;
mod token;
mod tokens;
mod user_data;
mod wanted;

pub use absences::{AbsenceCache, AbsenceLookup};
pub use access::{CloudAccess, LoginCache, MOST_LOGINS};
pub use answer::HttpAnswer;
pub use ca_bundle::{CaBundle, CaBundleError};
pub use class::{check_provider, driver_of};
pub use client::{HttpClient, HttpLimits, LARGEST, causes, failed, find, pause_of, retry_after};
pub use coalesce::LookupCoalescer;
pub use creations::{CreationLedger, CreationRight, UnfinishedCreation, VmCreations, creating_while};
pub use credential_file::read_credential_file;
pub use failure::CloudFailure;
pub use fields::{choice, filled, is_word, known, number, required_known};
pub use finder::{CloudVm, VmAbsence, VmLookupError, VmOwnership, created_for, known_as, only};
pub use http::code_of_status;
pub use instance_name::{check_instance_name, is_instance_name};
pub use jwt::{JwtAlgorithm, JwtKey};
pub use limiter::{AccountLimiters, AdaptiveLimiter};
pub use markers::{ClassMarkers, MarkerNames};
pub use operations::{CloudDriver, CloudOperations, CloudSession};
pub use pace::{PollTiming, until_done};
pub use pages::PageCollector;
pub use provider_id::ProviderIds;
pub use query::{VmLookups, VmQuery};
pub use recent::LruCache;
pub use requests::RequestReporter;
pub use rest::{BearerToken, CallEffect, FailureOf, RequestAuthenticator, RestCall, RestClient, UnsignedRequest};
pub use secret::SecretReader;
pub use text::safe_text;
pub use tls::{AGENT, TlsClientCache, TlsOptions};
pub use token::idempotency_token;
pub use tokens::{IssuedToken, TokenCache, TokenSource};
pub use user_data::{UserDataLimit, gzip, is_for_cloud_init};
pub use wanted::MachineIdentity;
