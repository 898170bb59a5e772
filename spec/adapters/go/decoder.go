// A small decoder of aggregated records, as an example: put yours in its place.
package main

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

type userRecord struct {
	partitionKey    string
	explicitHashKey *string
	data            []byte
}

type field struct {
	number, wireType, varint uint64
	bytes                    []byte
}

var magic = []byte{0xF3, 0x89, 0x9A, 0xC2}

func fields(message []byte) (found []field, err error) {
	for len(message) > 0 {
		tag, size := binary.Uvarint(message)
		if size <= 0 || tag>>3 == 0 {
			return nil, errors.New("no tag")
		}
		message = message[size:]
		one := field{number: tag >> 3, wireType: tag & 7}
		skipped := uint64(0)
		switch one.wireType {
		case 0, 2:
			if one.varint, size = binary.Uvarint(message); size <= 0 {
				return nil, errors.New("no number")
			}
			message = message[size:]
			if one.wireType == 2 {
				skipped = one.varint
			}
		case 1:
			skipped = 8
		case 5:
			skipped = 4
		default:
			return nil, errors.New("unknown wire type")
		}
		if skipped > uint64(len(message)) {
			return nil, errors.New("a field is cut")
		}
		one.bytes, message = message[:skipped], message[skipped:]
		found = append(found, one)
	}
	return found, nil
}

func key(table [][]byte, index uint64) (string, error) {
	if index >= uint64(len(table)) {
		return "", errors.New("no such key")
	}
	if !utf8.Valid(table[index]) || utf8.RuneCount(table[index]) > 256 {
		return "", errors.New("a key is no text, or too long")
	}
	return string(table[index]), nil
}

// decode gives the user records, or none and no error for a plain record.
func decode(data []byte) ([]userRecord, error) {
	if !bytes.HasPrefix(data, magic) || len(data) <= 20 {
		return nil, nil
	}
	message, digest := data[4:len(data)-16], data[len(data)-16:]
	if sum := md5.Sum(message); !bytes.Equal(sum[:], digest) {
		return nil, errors.New("the digest is wrong")
	}
	outer, err := fields(message)
	if err != nil {
		return nil, err
	}
	tables := map[uint64][][]byte{}
	for _, one := range outer {
		if one.wireType != 2 && one.number <= 3 {
			return nil, errors.New("a field of the wrong type")
		}
		tables[one.number] = append(tables[one.number], one.bytes)
	}
	if len(tables[3]) == 0 {
		return nil, errors.New("no user records")
	}
	var records []userRecord
	for _, body := range tables[3] {
		inner, err := fields(body)
		if err != nil {
			return nil, err
		}
		last := map[uint64]field{}
		for _, one := range inner {
			last[one.number] = one
		}
		index, found := last[1]
		payload, whole := last[3]
		if !found || !whole || index.wireType != 0 || payload.wireType != 2 {
			return nil, errors.New("a field is missing")
		}
		record := userRecord{data: payload.bytes}
		if record.partitionKey, err = key(tables[1], index.varint); err != nil {
			return nil, err
		}
		if explicit, given := last[2]; given {
			text, err := key(tables[2], explicit.varint)
			if err != nil {
				return nil, err
			}
			record.explicitHashKey = &text
		}
		records = append(records, record)
	}
	return records, nil
}
