//! The SOAP of vSphere: envelopes are written, responses are read, and a session is kept for each login.

mod client;
mod read;
mod write;

pub(crate) use self::{
    client::{Method, Soap},
    read::{child, children, fault, flag, kind_of, number_of, reference_of, text_of},
    write::{Xml, echo},
};

/// A managed object of vCenter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ref {
    /// Its type, such as `VirtualMachine`.
    pub kind: String,
    /// Its ID, such as `vm-12`.
    pub id: String,
}

impl Ref {
    pub(crate) fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

/// Namespace of the attribute that names the type of a value.
const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
const ENVELOPE: &str = "http://schemas.xmlsoap.org/soap/envelope/";
