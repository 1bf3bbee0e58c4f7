"""CreateTopics, DeleteTopics and CreatePartitions at a fleet's broker: served, forwarded in an Envelope, or refused."""

import pytest

from channel.broker.administrator_requests import AdministratorRequests
from channel.broker.hooks import RequestContext
from channel.errors import IllegalState
from channel.network.request import ClientRequest, ClientResponse, MessageRequest
from kproto import codec, headers
from kproto.api import ApiKey, response_header_version
from kproto.error_codes import ErrorCode
from kproto.messages import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    EnvelopeResponse,
)

CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
CONTEXT = RequestContext(ApiKey.CREATE_TOPICS, 5, 42, "admin", "PLAINTEXT", "192.0.2.7:50123")


class Channel:
    """A channel to the controller that keeps requests until the test answers."""

    broker_id = 3

    def __init__(self):
        self.sent = []
        self.is_closed = False

    def send_request(self, request, on_complete, on_timeout):
        if self.is_closed:
            raise IllegalState("closed")
        self.sent.append(request.message)
        self.complete, self.time_out = on_complete, on_timeout

    def answer(self, body, *, version_mismatch=None):
        request = ClientRequest("1", MessageRequest(self.sent[-1]), 0, 0, 0)
        self.complete(ClientResponse(request, 0, body, version_mismatch=version_mismatch))


class Candidacy:
    """A candidacy whose controller notes the requests that it serves."""

    def __init__(self):
        self.is_active = False
        self.served = []
        self.apis = self
        self.keys = {ApiKey.CREATE_TOPICS, ApiKey.ALTER_PARTITION}

    def __call__(self, context, request, answer):
        self.served.append(context.api_key)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def answers():
    return []


def test_a_broker_without_a_migration_names_itself_no_controller(answers):
    requests = AdministratorRequests(None, None)
    requests(CONTEXT, CREATE, answers.append)
    requests(CONTEXT._replace(api_key=ApiKey.DELETE_TOPICS), DeleteTopicsRequest(topic_names=["t"]), answers.append)
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)])
    requests(CONTEXT._replace(api_key=ApiKey.CREATE_PARTITIONS), more, answers.append)
    created, deleted, added = answers
    rows = *created.topics, *deleted.responses, *added.results
    assert [(row.name, row.error_code) for row in rows] == [("t", ErrorCode.NOT_CONTROLLER)] * 3
    assert requests.keys == {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}


def test_an_envelope_holds_the_request_with_its_header_and_the_client_s_address(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    (envelope,) = channel.sent
    header, at = headers.decode_request_header_from(envelope.request_data)
    assert (header.request_api_key, header.request_api_version) == (ApiKey.CREATE_TOPICS, 5)
    assert (header.correlation_id, header.client_id) == (42, "admin")
    assert codec.decode_request(ApiKey.CREATE_TOPICS, 5, envelope.request_data[at:]) == CREATE
    assert envelope.client_host_address == bytes([192, 0, 2, 7])
    assert envelope.request_principal == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    assert not answers


def test_an_envelope_names_the_principal_of_the_client(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT._replace(principal="User:alice"), CREATE, answers.append)
    assert channel.sent[0].request_principal == b"\0\0\x05User\x06alice\0\0"


def test_the_controller_s_answer_is_the_broker_s(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", num_partitions=1, replication_factor=1)])
    header = headers.encode_response_header(
        headers.response_header(42), response_header_version(ApiKey.CREATE_TOPICS, 5)
    )
    channel.answer(EnvelopeResponse(response_data=header + codec.encode(response, 5)))
    assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.NONE]
    assert answers[0].topics[0].num_partitions == 1


@pytest.mark.parametrize(
    "body", [EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST), EnvelopeResponse(response_data=b"\0\0"), None]
)
def test_an_envelope_that_fails_is_an_unknown_error_for_the_client(channel, answers, body):
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    channel.answer(body)
    assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_version_that_the_controller_lacks_closes_the_client_s_connection(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    channel.answer(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert answers == [None]


def test_a_request_that_no_controller_took_in_time_has_timed_out(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    channel.time_out()
    assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_broker_that_goes_down_closes_the_client_s_connection(channel, answers):
    channel.is_closed = True
    AdministratorRequests(None, channel)(CONTEXT, CREATE, answers.append)
    assert answers == [None]


def test_the_active_controller_serves_requests_itself_and_another_candidate_forwards_them(channel, answers):
    candidacy = Candidacy()
    requests = AdministratorRequests(candidacy, channel)
    assert requests.keys >= candidacy.keys
    requests(CONTEXT, CREATE, answers.append)
    assert len(channel.sent) == 1
    requests(CONTEXT._replace(api_key=ApiKey.ALTER_PARTITION), None, answers.append)
    candidacy.is_active = True
    requests(CONTEXT, CREATE, answers.append)
    assert len(channel.sent) == 1
    assert candidacy.served == [ApiKey.ALTER_PARTITION, ApiKey.CREATE_TOPICS]


def test_an_ipv6_client_is_named_by_its_address(channel, answers):
    AdministratorRequests(None, channel)(CONTEXT._replace(peer="fe80::1%eth0:50123"), CREATE, answers.append)
    assert channel.sent[0].client_host_address == bytes.fromhex("fe80") + bytes(13) + b"\1"
