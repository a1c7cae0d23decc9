//! The driver of OpenStack.
