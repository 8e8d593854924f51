//! Topic ids (KIP-516): a topic that was deleted and made again under the same name has another one. The
//! one call that rust-rdkafka does not wrap.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods)] // metadata with a deadline, on the thread that restores

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::bindings as ffi;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::types::RDKafkaErrorCode;

use super::client::without_group;
use crate::error::{Code, Error, Result};

const CALL: Duration = Duration::from_secs(20);
/// A broker that is there answers sooner.
const FIRST: Duration = Duration::from_secs(5);

/// Asks for topic ids.
pub struct TopicIds {
    admin: AdminClient<DefaultClientContext>,
}

impl std::fmt::Debug for TopicIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicIds").finish_non_exhaustive()
    }
}

impl TopicIds {
    /// For a broker.
    ///
    /// # Errors
    /// `config_invalid`.
    pub fn new(client: &ClientConfig) -> Result<Self> {
        let admin = without_group(client)
            .create()
            .map_err(|e| Error::with(Code::ConfigInvalid, "the admin client can't be made", e))?;
        Ok(Self { admin })
    }

    /// Ids (base64) by name; a topic that the broker doesn't know is left out.
    ///
    /// # Errors
    /// `broker_unreachable`.
    pub fn of(&self, names: &[&str]) -> Result<BTreeMap<String, String>> {
        self.ask(names, FIRST).or_else(|_| {
            // The client asks the controller that it knows, and learns of another one for minutes by no other way.
            let metadata = self.admin.inner().fetch_metadata(None, CALL);
            metadata.map_err(|e| Error::with(Code::BrokerUnreachable, "topics can't be described", e))?;
            self.ask(names, CALL)
        })
    }

    fn ask(&self, names: &[&str], limit: Duration) -> Result<BTreeMap<String, String>> {
        let owned: Vec<CString> = names.iter().filter_map(|n| CString::new(*n).ok()).collect();
        let mut pointers: Vec<*const c_char> = owned.iter().map(|n| n.as_ptr()).collect();
        let rk = self.admin.inner().native_ptr();
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `rk` and `owned` outlive the call; each object made here is destroyed here, after the
        // event that points into it was read; the event owns the result.
        unsafe {
            let queue = ffi::rd_kafka_queue_new(rk);
            let options =
                ffi::rd_kafka_AdminOptions_new(rk, ffi::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
            let mut text = [0 as c_char; 256];
            ffi::rd_kafka_AdminOptions_set_request_timeout(options, millis, text.as_mut_ptr(), text.len());
            let topics = ffi::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            ffi::rd_kafka_DescribeTopics(rk, topics, options, queue);
            let event = ffi::rd_kafka_queue_poll(queue, millis);
            let ids = if event.is_null() { Err("no answer".to_owned()) } else { read(event) };
            if !event.is_null() {
                ffi::rd_kafka_event_destroy(event);
            }
            ffi::rd_kafka_TopicCollection_destroy(topics);
            ffi::rd_kafka_AdminOptions_destroy(options);
            ffi::rd_kafka_queue_destroy(queue);
            ids
        }
        .map_err(|e| Error::with(Code::BrokerUnreachable, "topics can't be described", e))
    }
}

/// # Safety
/// `event` is the answer to a `DescribeTopics`.
unsafe fn read(event: *mut ffi::rd_kafka_event_t) -> std::result::Result<BTreeMap<String, String>, String> {
    // SAFETY: the event lives until the caller destroys it, and all pointers read here point into it; null
    // pointers are checked where librdkafka may return one.
    unsafe {
        if ffi::rd_kafka_event_error(event) as i32 != 0 {
            return Err(text(ffi::rd_kafka_event_error_string(event)));
        }
        let result = ffi::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return Err("another answer".to_owned());
        }
        let mut count = 0;
        let topics = ffi::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let mut ids = BTreeMap::new();
        for i in 0..count {
            let topic = *topics.add(i);
            let error = ffi::rd_kafka_TopicDescription_error(topic);
            if !error.is_null() && ffi::rd_kafka_error_code(error) as i32 != RDKafkaErrorCode::NoError as i32 {
                continue;
            }
            let id = ffi::rd_kafka_TopicDescription_topic_id(topic);
            if !id.is_null() {
                ids.insert(text(ffi::rd_kafka_TopicDescription_name(topic)), text(ffi::rd_kafka_Uuid_base64str(id)));
            }
        }
        Ok(ids)
    }
}

/// # Safety
/// `pointer` is null or a C string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller says that it is a C string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
