//! Access to diagnostics: the API server authenticates the token and authorizes the user for the path.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
        authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// How long an answer of the API server counts. A right that was taken away ends so much later.
const MEMORY: Duration = Duration::from_secs(60);
/// The same for a refusal, which a new role may end at any time.
const MEMORY_OF_REFUSALS: Duration = Duration::from_secs(10);
/// The most reviews that are remembered.
const MOST: usize = 256;
/// Longest token that is sent to the API server and remembered. Tokens of ServiceAccounts have 1 to 2 KiB.
const LONGEST_TOKEN: usize = 16 << 10;
/// Longest path for which a user is authorized.
const LONGEST_PATH: usize = 1 << 10;
/// How long the API server may take for both questions.
const PATIENCE: Duration = Duration::from_secs(5);

/// The API server's answer for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessVerdict {
    Allowed,
    /// The token belongs to no user.
    Unauthenticated,
    /// The user may not read this path.
    Forbidden,
}

/// Sends reviews to the API server, and caches its answers for a short time. Clones share them.
#[derive(Clone)]
pub struct AccessReviewer(Arc<AccessCache>);

struct AccessCache {
    client: Client,
    /// By token and path. Tokens are never shown.
    answers: Mutex<HashMap<(String, String), (AccessVerdict, Instant)>>,
}

impl std::fmt::Debug for AccessReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl AccessReviewer {
    /// The client should have separate limits: unauthenticated requests cause its calls.
    pub fn new(client: Client) -> Self {
        Self(Arc::new(AccessCache { client, answers: Mutex::default() }))
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<AccessVerdict, AccessReviewError> {
        if token.len() > LONGEST_TOKEN {
            return Ok(AccessVerdict::Unauthenticated);
        }
        if path.len() > LONGEST_PATH {
            return Ok(AccessVerdict::Forbidden);
        }
        let key = (token.to_owned(), path.to_owned());
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let verdict = timeout(PATIENCE, self.ask(token, path)).await.map_err(|_| AccessReviewError::Silent)??;
        self.remember(key, verdict);
        Ok(verdict)
    }

    fn known(&self, key: &(String, String)) -> Option<AccessVerdict> {
        let answers = self.0.answers.lock();
        answers.get(key).filter(|(_, until)| Instant::now() < *until).map(|(verdict, _)| *verdict)
    }

    fn remember(&self, key: (String, String), verdict: AccessVerdict) {
        let now = Instant::now();
        let mut answers = self.0.answers.lock();
        answers.retain(|_, (_, until)| now < *until);
        if answers.len() < MOST {
            let memory = if verdict == AccessVerdict::Allowed { MEMORY } else { MEMORY_OF_REFUSALS };
            answers.insert(key, (verdict, now + memory));
        }
    }

    async fn ask(&self, token: &str, path: &str) -> Result<AccessVerdict, AccessReviewError> {
        let Some(user) = self.user(token).await? else { return Ok(AccessVerdict::Unauthenticated) };
        let path = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(path),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let reviews: Api<SubjectAccessReview> = Api::all(self.0.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.map_err(AccessReviewError::from)?;
        let is_allowed = review.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { AccessVerdict::Allowed } else { AccessVerdict::Forbidden })
    }

    /// The user of a token; `None` if the token is invalid.
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, AccessReviewError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let reviews: Api<TokenReview> = Api::all(self.0.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.map_err(AccessReviewError::from)?;
        Ok(review.status.filter(|status| status.authenticated == Some(true)).and_then(|status| status.user))
    }
}

/// The review failed.
#[derive(Debug, thiserror::Error)]
enum AccessReviewError {
    #[error("the API server takes longer than {} s", PATIENCE.as_secs())]
    Silent,
    /// The answer could quote the request, which contains the token; so only the code is shown.
    #[error(
        "the API server refuses the review with code {0}: may this program create tokenreviews and subjectaccessreviews?"
    )]
    Refused(u16),
    #[error("the API server cannot be reached")]
    Unreachable,
}

impl From<kube::Error> for AccessReviewError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status.code),
            _ => Self::Unreachable,
        }
    }
}

/// Lets requests through that the API server authorizes. Without an answer a request is refused.
pub(super) async fn guard(State(access): State<AccessReviewer>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim).filter(|token| !token.is_empty());
    let (token, path) = (token.map(str::to_owned), request.uri().path().to_owned());
    let verdict = match token {
        Some(token) => access.verdict(&token, &path).await,
        None => Ok(AccessVerdict::Unauthenticated),
    };
    match verdict {
        Ok(AccessVerdict::Allowed) => next.run(request).await,
        Ok(AccessVerdict::Unauthenticated) => {
            let scheme = [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
            (StatusCode::UNAUTHORIZED, scheme, "send the token of a user as Authorization: Bearer\n").into_response()
        }
        Ok(AccessVerdict::Forbidden) => (
            StatusCode::FORBIDDEN,
            format!("this user may not get the path {path}: bind a role with that nonResourceURL\n"),
        )
            .into_response(),
        Err(failure) => {
            tracing::warn!(%failure, "request for diagnostics not authorized");
            (StatusCode::SERVICE_UNAVAILABLE, "the API server could not authorize this request\n").into_response()
        }
    }
}
