//! Calls of methods of vCenter with the session of a login.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use mcm_driver::cloud::{
    CallEffect, CloudFailure, HttpAnswer, HttpClient, IssuedToken, RequestAuthenticator, RestCall, RestClient,
    TokenCache, TokenSource, UnsignedRequest,
};
use parking_lot::Mutex;
use reqwest::{
    Client, Method as HttpMethod,
    header::{HeaderMap, SET_COOKIE},
};
use roxmltree::Node;
use tokio::{runtime::Handle, time::Instant};

use super::{
    Ref, Xml,
    read::{child, reference_of, response, text_of},
    write::envelope,
};
use crate::{errors::failure_of, login::Login};

/// The version of the API. Every supported vCenter has it.
const VERSION: &str = "urn:vim25/6.7";
const CONTENT_TYPE: &str = "text/xml; charset=utf-8";
const COOKIE: &str = "cookie";
/// Name of the cookie that holds a session.
const SESSION: &str = "vmware_soap_session";
/// vCenter ends sessions that are not used for 30 minutes. Others are renewed once a day.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// After a refused login no other is tried for so long: vCenter locks accounts after five.
const NO_LOGIN: Duration = Duration::from_secs(60);

/// A method of vCenter's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub name: &'static str,
    /// Its name in the metrics.
    pub service: &'static str,
    pub effect: CallEffect,
}

impl Method {
    /// A method that only reads.
    pub(crate) const fn read(name: &'static str, service: &'static str) -> Self {
        Self { name, service, effect: CallEffect::Reads }
    }

    /// A method that changes something only once, however often it is called.
    pub(crate) const fn idempotent(name: &'static str, service: &'static str) -> Self {
        Self { name, service, effect: CallEffect::WritesOnce }
    }

    /// A method that changes something.
    pub(crate) const fn write(name: &'static str, service: &'static str) -> Self {
        Self { name, service, effect: CallEffect::Writes }
    }
}

/// The managers of a vCenter.
#[derive(Clone, Debug)]
pub(crate) struct Managers {
    pub root: Ref,
    pub properties: Ref,
    pub search: Ref,
    /// A host without a vCenter lacks the others.
    pub fields: Option<Ref>,
    pub storage: Option<Ref>,
    pub customization: Option<Ref>,
    sessions: Ref,
}

/// A vCenter with the session of a login.
pub(crate) struct Soap {
    rest: Arc<RestClient>,
    sessions: TokenCache<Logins>,
}

impl Soap {
    pub(crate) fn new(http: &Arc<HttpClient>, client: Client, login: &Login, slowest: f64) -> Self {
        let rest = RestClient::new(http, client, login.url.clone(), Box::new(Anyone), slowest, failure_of);
        let rest = Arc::new(rest);
        let source = Logins { rest: Arc::clone(&rest), login: login.clone(), refused: Mutex::default() };
        Self { rest, sessions: TokenCache::new(source) }
    }

    pub(crate) async fn managers(&self) -> Result<Managers, CloudFailure> {
        Ok(self.sessions.get().await?.managers.clone())
    }

    /// Calls a method of an object, and reads its response. If the session has ended, the call is made again with a new one.
    ///
    /// # Errors
    /// The failure of the call; [`Failure::Unreadable`] if `read` finds no response.
    pub(crate) async fn call<T>(
        &self,
        method: Method,
        this: &Ref,
        arguments: &Xml,
        mut read: impl FnMut(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, CloudFailure> {
        let call = call_of(method, this, arguments);
        match response(&self.answer(&call).await?.text, &mut read) {
            // Something before vCenter may have answered.
            Err(CloudFailure::Unreadable(_)) if method.effect != CallEffect::Writes => {
                response(&self.answer(&call).await?.text, read)
            }
            result => result,
        }
    }

    async fn answer(&self, call: &RestCall<'_>) -> Result<HttpAnswer, CloudFailure> {
        let session = self.sessions.get().await?;
        match self.send(&session, call).await {
            Err(failure) if failure.is("NotAuthenticated") => {
                let session = self.after(&session).await?;
                self.send(&session, call).await
            }
            answer => answer,
        }
    }

    async fn send(&self, session: &Session, call: &RestCall<'_>) -> Result<HttpAnswer, CloudFailure> {
        self.rest.answer(&call.clone().header(COOKIE, session.cookie.clone())).await
    }

    /// The session after one that has ended. Calls that had the same one get the same new one.
    async fn after(&self, ended: &Arc<Session>) -> Result<Arc<Session>, CloudFailure> {
        ended.has_ended.store(true, Relaxed);
        self.sessions.forget_if(|current| Arc::ptr_eq(current, ended)).await;
        self.sessions.get().await
    }
}

fn call_of(method: Method, this: &Ref, arguments: &Xml) -> RestCall<'static> {
    let call = match method.effect {
        CallEffect::Reads => RestCall::read(method.service, HttpMethod::POST, &[]),
        CallEffect::Writes => RestCall::write(method.service, HttpMethod::POST, &[]),
        CallEffect::WritesOnce => RestCall::idempotent(method.service, HttpMethod::POST, &[]),
    };
    call.text(CONTENT_TYPE, envelope(method.name, this, arguments)).header("soapaction", VERSION)
}

/// The cookies of requests are those of their sessions.
struct Anyone;

#[async_trait]
impl RequestAuthenticator for Anyone {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(HeaderMap::new())
    }
}

/// Logs in.
struct Logins {
    rest: Arc<RestClient>,
    login: Login,
    /// The last refusal, and when it was.
    refused: Mutex<Option<(Instant, CloudFailure)>>,
}

#[async_trait]
impl TokenSource for Logins {
    type Value = Arc<Session>;

    async fn fetch(&self) -> Result<IssuedToken<Self::Value>, CloudFailure> {
        let refused = self.refused.lock().clone();
        if let Some((_, failure)) = refused.filter(|(since, _)| since.elapsed() < NO_LOGIN) {
            return Err(failure);
        }
        let session = self.log_in().await;
        let refusal = session.as_ref().err().filter(|failure| failure.is("InvalidLogin"));
        *self.refused.lock() = refusal.map(|failure| (Instant::now(), failure.clone()));
        let expires = Instant::now().checked_add(LIFE).unwrap_or_else(Instant::now);
        Ok(IssuedToken { value: Arc::new(session?), expires })
    }
}

impl Logins {
    async fn log_in(&self) -> Result<Session, CloudFailure> {
        const CONTENT: Method = Method::read("RetrieveServiceContent", "service_content");
        const LOGIN: Method = Method::write("Login", "login");
        let instance = Ref::new("ServiceInstance", "ServiceInstance");
        let content = self.rest.answer(&call_of(CONTENT, &instance, &Xml::new())).await?;
        let managers = response(&content.text, |node| managers(child(node, "returnval")?))?;
        let arguments = Xml::new().text("userName", &self.login.user).text("password", self.login.password());
        let answer = self.rest.answer(&call_of(LOGIN, &managers.sessions, &arguments)).await?;
        response(&answer.text, |node| child(node, "returnval").map(drop))?;
        let cookie = cookie_of(&answer.headers).ok_or(CloudFailure::Unreadable(200))?;
        Ok(Session { managers, cookie, rest: Arc::clone(&self.rest), has_ended: AtomicBool::new(false) })
    }
}

/// The cookie that holds a session, without what is for browsers.
fn cookie_of(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = all.filter_map(|value| value.split(';').next()).map(str::trim);
    let is_session =
        |cookie: &&str| cookie.split_once('=').is_some_and(|(name, value)| name == SESSION && !value.is_empty());
    cookies.find(is_session).map(str::to_owned)
}

fn managers(content: Node<'_, '_>) -> Option<Managers> {
    let of = |name| child(content, name).and_then(reference_of);
    // Something else may have the same protocol.
    text_of(child(content, "about")?, "apiType")?;
    Some(Managers {
        root: of("rootFolder")?,
        properties: of("propertyCollector")?,
        search: of("searchIndex")?,
        sessions: of("sessionManager")?,
        fields: of("customFieldsManager"),
        storage: of("storageResourceManager"),
        customization: of("customizationSpecManager"),
    })
}

/// A session, which is logged out with its last user.
struct Session {
    managers: Managers,
    cookie: String,
    rest: Arc<RestClient>,
    /// vCenter ended it.
    has_ended: AtomicBool,
}

impl Drop for Session {
    /// vCenter has a limit of sessions. If this fails, it ends the session by itself.
    fn drop(&mut self) {
        const LOGOUT: Method = Method::write("Logout", "logout");
        let Ok(runtime) = Handle::try_current() else { return };
        if *self.has_ended.get_mut() {
            return;
        }
        let call = call_of(LOGOUT, &self.managers.sessions, &Xml::new()).header(COOKIE, self.cookie.clone());
        let rest = Arc::clone(&self.rest);
        runtime.spawn(async move { rest.answer(&call).await.map(drop) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&["vmware_soap_session=a-b; HttpOnly; Secure"], Some("vmware_soap_session=a-b"))]
    #[case::of_a_balancer(&["lb=1", "vmware_soap_session=\"a\"; Path=/"], Some("vmware_soap_session=\"a\""))]
    #[case::empty(&["vmware_soap_session=; Path=/"], None)]
    #[case(&["other=a"], None)]
    #[case(&[], None)]
    fn a_session_is_one_of_the_cookies(#[case] cookies: &[&'static str], #[case] expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        assert_eq!(cookie_of(&headers).as_deref(), expected);
    }
}
